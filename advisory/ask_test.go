package advisory_test

import (
	"errors"
	"testing"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// twoNumbers counts the granted advisory locks with two numbers in a database: the
// marks of sessions, and those of requests.
func twoNumbers(t *testing.T, dsn string) int64 {
	t.Helper()
	return pgtest.One[int64](t, dsn, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
}

// A request is for one key: what else the session holds stays, the lock stays its
// holder's until that gives it back, and nothing of the request is left then.
func TestAskForOneKey(t *testing.T) {
	dsn := pgtest.Shared(t).Database(t)
	a, b := open(t, dsn, "a", pgmutex.Options{}), open(t, dsn, "b", pgmutex.Options{})
	x, y := take(t, a, "x"), take(t, a, "y")
	marks := twoNumbers(t, dsn)
	seen, err := b.Inspect(t.Context(), "x")
	pgtest.Must(t, err)
	for range 2 { // the second one is nothing new
		pgtest.Must(t, b.ForceRelease(t.Context(), seen, nil))
	}
	if err := x.Heartbeat(t.Context()); !errors.Is(err, pgmutex.ErrLost) {
		t.Errorf("heartbeat: %v", err)
	}
	pgtest.Must(t, y.Heartbeat(t.Context()))
	mustBusy(t, b, "x")
	matches(t, x.Release(t.Context()), pgmutex.ErrLost)
	pgtest.WaitFor(t, "x to be given back", func() bool {
		s, err := b.Inspect(t.Context(), "x")
		pgtest.Must(t, err)
		return s.State == pgmutex.StateFree
	})
	pgtest.WaitFor(t, "the request's mark to go", func() bool { return twoNumbers(t, dsn) == marks })
	again := take(t, a, "x")
	if s, err := b.Inspect(t.Context(), "x"); err != nil || s.StopAsked {
		t.Errorf("the next hold is asked to stop: %+v, %v", s, err)
	}
	pgtest.Must(t, again.Heartbeat(t.Context()))
	if err := b.ForceRelease(t.Context(), pgmutex.Status{Name: "z", Term: seen.Term}, nil); !errors.Is(err, pgmutex.ErrNotHeld) {
		t.Errorf("a key that the session does not hold: %v", err)
	}
}

// The sessions of other programs hear nothing, and are left alone; nobody answers
// for them.
func TestAskStranger(t *testing.T) {
	dsn := pgtest.Shared(t).Database(t)
	conn := pgtest.Conn(t, dsn)
	pgtest.One[bool](t, conn, "SELECT pg_try_advisory_lock($1)", pgmutex.AdvisoryID("x"))
	c := open(t, dsn, "c", pgmutex.Options{})
	seen, err := c.Inspect(t.Context(), "x")
	pgtest.Must(t, err)
	if err := c.ForceRelease(t.Context(), seen, nil); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("error %v", err)
	}
	pgtest.One[int32](t, conn, "SELECT 1")
}

// Anybody may notify: what is no request ends nothing.
func TestAskNonsense(t *testing.T) {
	dsn := pgtest.Shared(t).Database(t)
	a := open(t, dsn, "a", pgmutex.Options{})
	h := take(t, a, "x")
	pid := pgtest.One[int32](t, dsn, "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 LIMIT 1")
	for _, text := range []string{"", "x", "12", "99999999999999999999 b"} {
		pgtest.Exec(t, dsn, "SELECT pg_notify('pgmutex_stop_' || $1::int4, $2)", pid, text)
	}
	pgtest.Must(t, h.Heartbeat(t.Context()))
	pgtest.Must(t, h.Heartbeat(t.Context()))
	pgtest.Must(t, h.Release(t.Context()))
}
