package pgdb

import (
	"context"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex/internal/faultconn"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// sends runs a statement by Begin, which has to be possible.
func sends(t *testing.T, db *DB, sql string, args ...any) *Running {
	t.Helper()
	r := db.Begin(Work, st(sql), args)
	if r == nil {
		t.Fatalf("%s: cannot be sent", sql)
	}
	return r
}

func TestBeginIsRunInTwoSteps(t *testing.T) {
	db := open(t, fresh(t), Options{})
	const sql = `SELECT n, $2::text, NULL::int8, now() FROM generate_series(1, $1::int4) AS n`
	args := []any{int32(3), "é"}
	if db.Begin(Work, st(sql), args) != nil {
		t.Fatal("sent without a connection")
	}
	pgtest.Must(t, db.Check(t.Context()))
	if db.Begin(Work, st(sql), args) != nil {
		t.Fatal("sent what was not prepared")
	}
	pgtest.Must(t, db.Run(t.Context(), Work, st(sql), args, nil))
	if db.Begin(Work, st(sql), args[:1]) != nil || db.Begin(Work, st(sql), []any{struct{}{}, "x"}) != nil {
		t.Fatal("sent with wrong arguments")
	}
	for range 3 {
		r := sends(t, db, sql, args...)
		if db.Begin(Work, st(sql), args) != nil {
			t.Fatal("two at once")
		}
		if !r.Wait(t.Context()) {
			t.Fatal("no answer")
		}
		if _, one := r.Only(); one {
			t.Fatal("three rows")
		}
		var seen []int
		pgtest.Must(t, r.Finish(t.Context(), func(row Row) error {
			var n int
			var text string
			var null *int64
			var at time.Time
			err := row.Scan(&n, &text, &null, &at)
			if text != "é" || null != nil || time.Since(at).Abs() > time.Hour {
				t.Errorf("%q, %v, %v", text, null, at)
			}
			seen = append(seen, n)
			return err
		}))
		if len(seen) != 3 || seen[2] != 3 {
			t.Errorf("%v", seen)
		}
	}
	if got := one[string](t, db, Work, `SELECT 'next'`); got != "next" {
		t.Error(got)
	}
	r := sends(t, db, sql, int32(1), "x")
	if row, one := r.Only(); one {
		t.Errorf("%v before the answer", row)
	}
	var n int
	if !r.Wait(t.Context()) {
		t.Fatal("no answer")
	}
	if row, one := r.Only(); !one || row.Scan(&n, nil, nil, nil) != nil || n != 1 {
		t.Errorf("one row: %d", n)
	}
	stop := errors.New("stop")
	if err := r.Finish(t.Context(), func(Row) error { return stop }); !errors.Is(err, stop) || Classify(err) != Unknown {
		t.Error(err)
	}
}

func TestBegunStatementsFailAsOthersDo(t *testing.T) {
	dsn := fresh(t)
	admin := pgtest.Conn(t, dsn)
	pgtest.Exec(t, admin, `CREATE TABLE t (n int PRIMARY KEY)`)
	db := open(t, dsn, Options{})
	const insert, all = `INSERT INTO t VALUES ($1::int4)`, `SELECT * FROM t WHERE n = $1`
	pgtest.Must(t, db.Run(t.Context(), Work, st(insert), []any{int32(1)}, nil))
	pgtest.Must(t, db.Run(t.Context(), Work, st(all), []any{int32(1)}, nil))

	err := sends(t, db, insert, int32(1)).Finish(t.Context(), nil)
	if Classify(err) != Duplicate {
		t.Errorf("%v", err)
	}
	pgtest.Must(t, sends(t, db, insert, int32(2)).Finish(t.Context(), nil))

	// A plan that no longer fits is made anew.
	pgtest.Exec(t, admin, `ALTER TABLE t ADD COLUMN more text DEFAULT 'more'`)
	var n int
	var more string
	scan := func(row Row) error { return row.Scan(&n, &more) }
	pgtest.Must(t, sends(t, db, all, int32(2)).Finish(t.Context(), scan))
	if n != 2 || more != "more" {
		t.Errorf("%d, %q", n, more)
	}
	pgtest.Exec(t, admin, `ALTER TABLE t DROP COLUMN more, ADD COLUMN again text DEFAULT 'again'`)
	pgtest.Must(t, db.Run(t.Context(), Work, st(all), []any{int32(2)}, scan))
	pgtest.Must(t, sends(t, db, all, int32(2)).Finish(t.Context(), scan))
	if more != "again" {
		t.Errorf("%q", more)
	}

	r := sends(t, db, all, int32(2))
	if !r.Wait(t.Context()) {
		t.Fatal("no answer")
	}
	pgtest.Must(t, r.Finish(t.Context(), scan))
	pgtest.Exec(t, admin, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()`)
	pgtest.WaitFor(t, "the end of the session", func() bool {
		r := db.Begin(Work, st(all), []any{int32(2)})
		if r != nil {
			_ = r.Finish(t.Context(), scan) // it ends in the middle, or not yet
		}
		return r == nil
	})
	pgtest.Must(t, db.Run(t.Context(), Work, st(all), []any{int32(2)}, scan))
}

// Where something resets the session, nothing prepared is relied on any more.
func TestNothingIsBegunOnASessionThatIsReset(t *testing.T) {
	db := open(t, fresh(t), Options{})
	texts := []string{`SELECT 1`, `SELECT 2`}
	for _, sql := range texts {
		one[int](t, db, Work, sql)
	}
	pgtest.Must(t, db.Run(t.Context(), Work, st(`DEALLOCATE ALL`), nil, nil))
	pgtest.Must(t, sends(t, db, texts[0]).Finish(t.Context(), nil))
	for _, sql := range texts {
		if r := db.Begin(Work, st(sql), nil); r != nil {
			t.Errorf("%s: sent as if it were prepared: %v", sql, r.Finish(t.Context(), nil))
		}
		one[int](t, db, Work, sql)
	}
}

func TestWhoWaitsForABegunStatementMayLeave(t *testing.T) {
	dsn := fresh(t)
	admin := pgtest.Conn(t, dsn)
	proxy := faultconn.New(t, pgtest.Shared(t).Addr())
	db := open(t, proxy.DSN(dsn), Options{})
	const sql = `SELECT $1::text, pg_backend_pid()`
	pid := one[int](t, db, Work, `SELECT pg_backend_pid()`)
	pgtest.Must(t, db.Run(t.Context(), Work, st(sql), []any{"x"}, nil))

	for range 20 {
		proxy.HoldReplies()
		r := sends(t, db, sql, "x")
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan bool)
		go func() { left <- !r.Wait(ctx) }()
		cancel()
		if !<-left {
			t.Fatal("an answer came through")
		}
		proxy.ReleaseReplies()
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		finished := make(chan error)
		go func() {
			var text string
			var from int
			err := r.Finish(ctx, func(row Row) error { return row.Scan(&text, &from) })
			if err == nil && (text != "x" || from != pid) {
				err = errors.New("another answer")
			}
			finished <- err
		}()
		pgtest.Must(t, <-finished)
		cancel() // after the answer: it must not touch what comes next
		if got := one[int](t, db, Work, `SELECT pg_backend_pid()`); got != pid {
			t.Fatal("the connection was given up")
		}
	}

	// Whose time is over gives the connection up, and the server the statement.
	const slow = `SELECT pg_sleep(3600 * $1::int4)`
	pgtest.Must(t, db.Run(t.Context(), Work, st(slow), []any{int32(0)}, nil))
	r := sends(t, db, slow, int32(1))
	sleeping := func() int {
		return pgtest.One[int](t, admin, `SELECT count(*)::int FROM pg_stat_activity WHERE query LIKE '%3600%' AND state = 'active' AND pid <> pg_backend_pid()`)
	}
	pgtest.WaitFor(t, "the statement", func() bool { return sleeping() == 1 })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Finish(ctx, nil); Classify(err) != Unknown || !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	pgtest.WaitFor(t, "the statement to be canceled", func() bool { return sleeping() == 0 })
	if got := one[int](t, db, Work, `SELECT pg_backend_pid()`); got == pid {
		t.Error("a connection in doubt was used again")
	}
}

// mortal is a connection that TCP gives up, once, after dead has been set.
type mortal struct {
	net.Conn
	dead *atomic.Bool
}

func (m mortal) Read(b []byte) (int, error) {
	if m.dead.CompareAndSwap(true, false) {
		return 0, &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ETIMEDOUT)}
	}
	return m.Conn.Read(b)
}

// What TCP says of a peer that is gone calls itself a time-out, as a deadline's error
// does. It ends the connection all the same, and the statement is told why.
func TestAPeerThatTimedOutEndsABegunStatement(t *testing.T) {
	var dead atomic.Bool
	db := open(t, newPool(t, fresh(t), dialing(func(c net.Conn) net.Conn { return mortal{c, &dead} })), Options{})
	before := pid(t, db, Work)
	r := sends(t, db, `SELECT pg_backend_pid()`)
	dead.Store(true)
	err := r.Finish(t.Context(), nil)
	wantClass(t, err, Unknown)
	wantIs(t, err, syscall.ETIMEDOUT)
	if !r.c.pg.IsClosed() || pid(t, db, Work) == before {
		t.Error("the connection was kept")
	}
}

// timeless is a connection that has no deadlines, as one in an SSH tunnel.
type timeless struct{ net.Conn }

func (timeless) SetDeadline(time.Time) error      { return errors.ErrUnsupported }
func (timeless) SetReadDeadline(time.Time) error  { return errors.ErrUnsupported }
func (timeless) SetWriteDeadline(time.Time) error { return errors.ErrUnsupported }

// Where a deadline cannot end the reading of an answer, the end of the connection does.
func TestWhoWaitsOverAConnectionWithoutDeadlinesMayLeave(t *testing.T) {
	proxy := faultconn.New(t, pgtest.Shared(t).Addr())
	db := open(t, newPool(t, proxy.DSN(fresh(t)), dialing(func(c net.Conn) net.Conn { return timeless{c} })), Options{})
	before := pid(t, db, Work)
	proxy.HoldReplies()
	defer proxy.ReleaseReplies()
	r := sends(t, db, `SELECT pg_backend_pid()`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	left := make(chan error, 1)
	go func() { left <- r.Finish(ctx, nil) }()
	cancel()
	pgtest.WaitFor(t, "the caller to leave", func() bool { return len(left) == 1 })
	err := <-left
	wantClass(t, err, Unknown)
	wantIs(t, err, context.Canceled)
	proxy.ReleaseReplies()
	if pid(t, db, Work) == before {
		t.Error("the connection was kept")
	}
}

func TestCloseCutsABegunStatementOff(t *testing.T) {
	db, err := Open(fresh(t), Options{})
	pgtest.Must(t, err)
	const slow = `SELECT pg_sleep(3600 * $1::int4)`
	pgtest.Must(t, db.Run(t.Context(), Work, st(slow), []any{int32(0)}, nil))
	r := sends(t, db, slow, int32(1))
	finished := make(chan error)
	go func() { finished <- r.Finish(context.Background(), nil) }()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := db.Close(ctx); err == nil {
		t.Error("nothing was cut off")
	}
	if err := <-finished; Classify(err) != Unknown {
		t.Errorf("%v", err)
	}
}

func TestBegunStatementTellsOfAStandby(t *testing.T) {
	dsn := fresh(t)
	db := open(t, dsn, Options{})
	const sql = `DO $$ BEGIN RAISE WARNING 'not on the standby'; END $$`
	pgtest.Must(t, skipWarned(db.Run(t.Context(), Work, st(sql), nil, nil)))
	if err := sends(t, db, sql).Finish(t.Context(), nil); Classify(err) != Unknown || SQLState(err) != "01000" {
		t.Errorf("%v", err)
	}
}

// skipWarned is nil for the error that a warning makes.
func skipWarned(err error) error {
	if SQLState(err) == "01000" {
		return nil
	}
	return err
}
