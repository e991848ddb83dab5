package pgdb

import (
	"strings"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex/internal/pgtest"
)

type heard struct {
	payload     string
	reconnected bool
}

func listen(t testing.TB, db *DB, channel string) (*Listener, <-chan heard) {
	t.Helper()
	c := make(chan heard, 1000)
	l, err := db.Listen(channel, func(payload string, reconnected bool) { c <- heard{payload, reconnected} })
	pgtest.Must(t, err)
	return l, c
}

func wantHeard(t testing.TB, c <-chan heard, want heard) {
	t.Helper()
	select {
	case got := <-c:
		if got != want {
			t.Fatalf("heard %+v, want %+v", got, want)
		}
	case <-time.After(30 * time.Second):
		t.Fatalf("nothing was heard, want %+v", want)
	}
}

var again = heard{reconnected: true}

func listeners(t testing.TB, dsn string) []int32 {
	t.Helper()
	return pgtest.Column[int32](t, dsn, `SELECT pid FROM pg_stat_activity WHERE application_name = 'pgmutex'
		AND datname = current_database() AND query ~ '^(UN)?LISTEN'`)
}

func TestListen(t *testing.T) {
	dsn := fresh(t)
	db := open(t, dsn, Options{})
	one, first := listen(t, db, `a "name" with %`)
	wantHeard(t, first, again)
	if !one.Live() || !db.CanListen() {
		t.Error("the listener is not live")
	}
	notify := func(channel, payload string) {
		pgtest.Exec(t, dsn, "SELECT pg_notify($1, $2)", channel, payload)
	}
	notify(`a "name" with %`, "x")
	wantHeard(t, first, heard{payload: "x"})

	two, second := listen(t, db, "other")
	wantHeard(t, second, again)
	three, third := listen(t, db, "other")
	wantHeard(t, third, again)
	notify("other", "y")
	wantHeard(t, second, heard{payload: "y"})
	wantHeard(t, third, heard{payload: "y"})
	if n := len(listeners(t, dsn)); n != 1 {
		t.Errorf("%d connections listen", n)
	}

	two.Close()
	two.Close()
	if two.Live() {
		t.Error("a closed listener is live")
	}
	notify("other", "z")
	wantHeard(t, third, heard{payload: "z"})
	three.Close()
	notify("other", "nobody")
	notify(`a "name" with %`, "last")
	wantHeard(t, first, heard{payload: "last"})
	if len(first)+len(second)+len(third) > 0 {
		t.Error("something else was heard")
	}
}

func TestListenRefusals(t *testing.T) {
	db := open(t, fresh(t), Options{})
	for _, channel := range []string{"", strings.Repeat("x", 64)} {
		if _, err := db.Listen(channel, func(string, bool) {}); err == nil {
			t.Errorf("channel %q was accepted", channel)
		}
	}
	_, c := listen(t, db, strings.Repeat("x", 63))
	wantHeard(t, c, again)
}

// After the connection is lost, everybody is woken, and notifications arrive
// again.
func TestListenSurvives(t *testing.T) {
	dsn := fresh(t)
	db := open(t, dsn, Options{})
	_, c := listen(t, db, "c")
	wantHeard(t, c, again)
	for range 3 {
		pids := listeners(t, dsn)
		if len(pids) != 1 {
			t.Fatalf("%d connections listen", len(pids))
		}
		pgtest.One[bool](t, dsn, "SELECT pg_terminate_backend($1, 30000)", pids[0])
		wantHeard(t, c, again)
		pgtest.Exec(t, dsn, "NOTIFY c, 'x'")
		wantHeard(t, c, heard{payload: "x"})
	}
}

// The server being away for a while is no matter either.
func TestListenSurvivesARestart(t *testing.T) {
	s := pgtest.New(t, pgtest.Options{})
	dsn := s.DSN("postgres", pgtest.Superuser)
	db := open(t, dsn, Options{})
	l, c := listen(t, db, "c")
	wantHeard(t, c, again)
	pgtest.Must(t, s.Stop(pgtest.Fast))
	pgtest.WaitFor(t, "the loss to be noticed", func() bool { return !l.Live() })
	pgtest.Must(t, s.Start())
	wantHeard(t, c, again)
	pgtest.Exec(t, dsn, "NOTIFY c")
	wantHeard(t, c, heard{})
}

// The connection is there only while somebody wants it, and a little longer.
func TestListenLingers(t *testing.T) {
	dsn := fresh(t)
	db := open(t, dsn, Options{})
	db.linger = time.Hour
	l, c := listen(t, db, "c")
	wantHeard(t, c, again)
	before := listeners(t, dsn)
	l.Close()
	l, c = listen(t, db, "c")
	wantHeard(t, c, again)
	if after := listeners(t, dsn); len(after) != 1 || after[0] != before[0] {
		t.Errorf("listening on %v, before on %v", after, before)
	}
	l.Close()
	shut(t, db)

	db = open(t, dsn, Options{})
	db.linger = time.Millisecond
	for range 2 {
		l, c = listen(t, db, "c")
		wantHeard(t, c, again)
		l.Close()
		pgtest.WaitFor(t, "the connection to be closed", func() bool { return len(listeners(t, dsn)) == 0 })
	}
}

// A pooler that is found out only when listening is told as well.
func TestListenFindsPooler(t *testing.T) {
	s := pgtest.Shared(t)
	dsn := pgtest.NewBouncer(t, s, "transaction", pgtest.BouncerOptions{}).DSN(s.Database(t))
	db := open(t, dsn, Options{})
	if !db.CanListen() {
		t.Error("CanListen is false before anything is known")
	}
	l, c := listen(t, db, "c")
	wantHeard(t, c, again)
	if l.Live() || db.CanListen() {
		t.Errorf("Live %v, CanListen %v", l.Live(), db.CanListen())
	}
	l.Close()
}
