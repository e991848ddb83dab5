package pgdb

import (
	"context"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex/internal/faultconn"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

const renewal = `SELECT pg_backend_pid()`

// sessions counts ours.
func sessions(t testing.TB, direct string) int {
	t.Helper()
	return pgtest.One[int](t, direct, "SELECT count(*)::int FROM pg_stat_activity WHERE application_name LIKE 'pgmutex%' AND datname = current_database()")
}

// lates runs a renewal whose answer is held back, and returns its session.
func lates(t testing.TB, p *faultconn.Proxy, db *DB) (pid int) {
	t.Helper()
	pid = one[int](t, db, Keep, renewal)
	p.HoldReplies()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := try[int](ctx, db, Keep, renewal)
	wantClass(t, err, Unknown)
	wantIs(t, err, context.DeadlineExceeded)
	return pid
}

// A link that becomes slow costs the renewals no connection: the answer of one that
// was given up is read all the same.
func TestLateAnswerKeepsTheConnection(t *testing.T) {
	p, dsn, direct := relay(t)
	db := open(t, dsn, Options{})
	session := lates(t, p, db)
	before := p.Counts()
	next := make(chan int)
	go func() {
		got, err := try[int](t.Context(), db, Keep, renewal)
		if err != nil {
			t.Error(err)
		}
		next <- got
	}()
	pgtest.WaitFor(t, "an attempt beside it", func() bool { return p.Counts().Since(before).Startups == 1 })
	p.ReleaseReplies() // one message away, and the new connection several
	if got := <-next; got != session {
		t.Errorf("session %d, want %d", got, session)
	}
	pgtest.WaitFor(t, "the new one to be given up", func() bool { return sessions(t, direct) == 1 })
	if got := one[int](t, db, Keep, renewal); got != session {
		t.Errorf("session %d, want %d", got, session)
	}
}

// Where another connection is there first, or nobody comes, it is closed.
func TestLateAnswerThatNobodyNeeds(t *testing.T) {
	held := func(t *testing.T, p *faultconn.Proxy, db *DB) *faultconn.Conn {
		t.Helper()
		trap := p.Trap(faultconn.Match{From: faultconn.Replies, Type: '2'}, faultconn.Hold)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-trap.Sprung(); cancel() }()
		_, err := try[int](ctx, db, Keep, renewal)
		wantIs(t, err, context.Canceled)
		return trap.Conn()
	}
	for name, ending := range map[string]func(*testing.T, *faultconn.Proxy, *DB){
		"another connection": func(t *testing.T, p *faultconn.Proxy, db *DB) {
			session := one[int](t, db, Keep, renewal)
			slow := held(t, p, db)
			other := one[int](t, db, Keep, renewal)
			if other == session {
				t.Error("an answer came through")
			}
			late := db.lanes[Keep].delayed
			slow.Thaw(faultconn.Replies)
			<-late.done
			if got := one[int](t, db, Keep, renewal); got != other || db.lanes[Keep].delayed != nil {
				t.Errorf("session %d, want %d", got, other)
			}
			db.lanes[Keep].timer.Reset(0)
		},
		"another late one": func(t *testing.T, p *faultconn.Proxy, db *DB) {
			held(t, p, db)
			first := db.lanes[Keep].delayed
			one[int](t, db, Keep, renewal)
			held(t, p, db)
			<-first.done
			if first.sound || db.lanes[Keep].delayed == first {
				t.Error("both are waited for")
			}
			pgtest.Must(t, db.Close(t.Context()))
		},
		"the end": func(t *testing.T, p *faultconn.Proxy, db *DB) {
			held(t, p, db)
			pgtest.Must(t, db.Close(t.Context())) // whatever is awaited
		},
		"nobody": func(t *testing.T, p *faultconn.Proxy, db *DB) {
			slow := held(t, p, db)
			late := db.lanes[Keep].delayed
			slow.Thaw(faultconn.Replies)
			<-late.done
			db.lanes[Keep].timer.Reset(0)
		},
		"no answer": func(t *testing.T, p *faultconn.Proxy, db *DB) {
			held(t, p, db)
			late := db.lanes[Keep].delayed
			late.stop() // as its limit does
			<-late.done
			if late.sound {
				t.Error("it is used again")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, dsn, direct := relay(t)
			db, err := Open(dsn, Options{})
			pgtest.Must(t, err)
			t.Cleanup(func() { shut(t, db) })
			one[int](t, db, Keep, renewal)
			db.idle = 10 * time.Millisecond
			ending(t, p, db)
			pgtest.WaitFor(t, "all sessions to end", func() bool { return sessions(t, direct) == 0 })
		})
	}
}

// Renewals cost one round trip, however long the connection has been idle, and are
// repeated where it turns out to be dead. Others are not: they may have been executed.
func TestRenewalIsRepeatedOnADeadConnection(t *testing.T) {
	p, dsn, _ := relay(t)
	db := open(t, dsn, Options{})
	for _, lane := range []Lane{Keep, Work} {
		session := one[int](t, db, lane, renewal)
		db.lanes[lane].used = time.Now().Add(-time.Hour)
		before := p.Counts()
		one[int](t, db, lane, renewal)
		if trips := p.Counts().Since(before).RoundTrips(); trips != map[Lane]int{Keep: 1, Work: 2}[lane] {
			t.Errorf("%v: %d round trips", lane, trips)
		}
		cut := p.Trap(faultconn.Match{From: faultconn.Requests, Type: 'B'}, faultconn.Cut)
		again, err := try[int](t.Context(), db, lane, renewal)
		<-cut.Sprung()
		switch {
		case lane == Work:
			wantClass(t, err, Unknown)
		case err != nil || again == session:
			t.Errorf("%d after %d, %v", again, session, err)
		}
	}
}

// A new connection has prepared what its predecessor ran.
func TestNextConnectionIsPrepared(t *testing.T) {
	p, dsn, _ := relay(t)
	db := open(t, dsn, Options{})
	one[int](t, db, Keep, renewal)
	p.Cut()
	before := p.Counts()
	pgtest.Must(t, db.lanes[Keep].with(t.Context(), "", func(conn) error { return nil }))
	if n := p.Counts().Since(before); n.Parse != 2 { // the introduction too
		t.Errorf("%+v", n)
	}
	before = p.Counts()
	one[int](t, db, Keep, renewal)
	if n := p.Counts().Since(before); n.Parse != 0 || n.RoundTrips() != 1 {
		t.Errorf("%+v", n)
	}
}
