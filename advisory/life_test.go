package advisory_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/internal/faultconn"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// TestNothingIsLeft: waiting leaves no mark, and a client that needs nothing keeps
// no connection.
func TestNothingIsLeft(t *testing.T) {
	dsn := pgtest.Shared(t).Database(t)
	a := open(t, dsn, "a", pgmutex.Options{StaleAfter: 3 * time.Second})
	b := open(t, dsn, "b", pgmutex.Options{StaleAfter: 3 * time.Second})
	h := take(t, a, "x")
	_, err := b.With(pgmutex.AcquireOptions{Wait: 100 * time.Millisecond}).Acquire(t.Context(), "x")
	matches(t, err, pgmutex.ErrHeld)
	granted := make(chan error, 1)
	go func() {
		h, err := b.Acquire(t.Context(), "x")
		if err == nil {
			err = h.Release(t.Context())
		}
		granted <- err
	}()
	pgtest.WaitFor(t, "b to be marked as waiting", func() bool { return marks(t, dsn) == 1 })
	pgtest.Must(t, h.Release(t.Context()))
	pgtest.Must(t, <-granted)
	pgtest.WaitFor(t, "the mark to be gone", func() bool { return marks(t, dsn) == 0 })
	pgtest.WaitFor(t, "the sessions to be given up", func() bool { return sessions(t, dsn) == 0 })
	take(t, a, "x") // opens another by itself
}

// marks counts waiters' marks.
func marks(t testing.TB, dsn string) int64 {
	t.Helper()
	return pgtest.One[int64](t, dsn, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1
		AND classid::bigint >= 2147483648 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
}

// TestWaiterKeepsItsSession: a waiter that holds nothing outlives the session lease.
func TestWaiterKeepsItsSession(t *testing.T) {
	dsn := pgtest.Shared(t).Database(t)
	a := open(t, dsn, "a", pgmutex.Options{})
	b := open(t, dsn, "b", pgmutex.Options{StaleAfter: 3 * time.Second, PollInterval: 5 * time.Minute})
	h := take(t, a, "x")
	granted := make(chan error, 1)
	go func() {
		_, err := b.Acquire(t.Context(), "x")
		granted <- err
	}()
	pgtest.WaitFor(t, "b to be marked as waiting", func() bool { return marks(t, dsn) == 1 })
	pid := func() int32 {
		return pgtest.One[int32](t, dsn, "SELECT pid FROM pg_stat_activity WHERE application_name = 'pgmutex b'")
	}
	first := pid()
	pgtest.WaitFor(t, "longer than its lease to pass on the server", func() bool {
		return pgtest.One[bool](t, dsn, "SELECT clock_timestamp() - backend_start > interval '4 s' FROM pg_stat_activity WHERE application_name = 'pgmutex b'")
	})
	if pid() != first {
		t.Error("the waiter's session was ended")
	}
	pgtest.Must(t, h.Release(t.Context()))
	pgtest.Must(t, <-granted)
}

// TestCloseLeavesTheLockToTheServer: work that goes on after Close keeps its lock
// until the server ends the session for its silence.
func TestCloseLeavesTheLockToTheServer(t *testing.T) {
	for name, source := range map[string]func(t testing.TB, dsn string) *pgmutex.Client{
		"DSN": func(t testing.TB, dsn string) *pgmutex.Client {
			return open(t, dsn, "a", pgmutex.Options{StaleAfter: 3 * time.Second})
		},
		"SQL": func(t testing.TB, dsn string) *pgmutex.Client {
			return open(t, sqlDB(t, dsn), "a", pgmutex.Options{StaleAfter: 3 * time.Second})
		},
	} {
		t.Run(name, func(t *testing.T) {
			dsn := pgtest.Shared(t).Database(t)
			a, b := source(t, dsn), open(t, dsn, "b", pgmutex.Options{})
			take(t, a, "at work")
			began := time.Now()
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if a.Close(ended) == nil {
				t.Error("Close did not say what was left")
			}
			mustBusy(t, b, "at work")
			_, err := b.Acquire(t.Context(), "at work")
			pgtest.Must(t, err)
			if took := time.Since(began); took < 2*time.Second {
				t.Errorf("free after %v", took)
			}
		})
	}
}

// TestCloseLeavesAServerThatIsSilent: a heartbeat that nobody answers does not hold
// Close up, and the connection is left to the server as well.
func TestCloseLeavesAServerThatIsSilent(t *testing.T) {
	dsn := pgtest.Shared(t).Database(t)
	proxy := faultconn.New(t, pgtest.Shared(t).Addr())
	a := open(t, proxy.DSN(dsn), "a", pgmutex.Options{StaleAfter: 10 * time.Minute, ReleaseTimeout: time.Second})
	h := take(t, a, "at work")
	pgtest.Must(t, h.Heartbeat(t.Context())) // it is prepared
	before := proxy.Counts()
	proxy.HoldReplies()
	defer proxy.ReleaseReplies()
	beat := make(chan error, 1)
	go func() { beat <- h.Heartbeat(t.Context()) }()
	pgtest.WaitFor(t, "the heartbeat to be sent", func() bool { return proxy.Counts().Since(before).Bind == 1 })
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if a.Close(ended) == nil {
			t.Error("Close did not say what was left")
		}
	}()
	after(t, closed, "Close")
	mustBusy(t, open(t, dsn, "b", pgmutex.Options{}), "at work")
	if <-beat == nil {
		t.Error("a heartbeat that nobody answered")
	}
}

func TestServerRestarts(t *testing.T) {
	server := pgtest.New(t, pgtest.Options{})
	dsn := server.Database(t)
	a, b := open(t, dsn, "a", pgmutex.Options{}), open(t, dsn, "b", pgmutex.Options{})
	h := take(t, a, "x")
	waiting := make(chan error, 1)
	go func() {
		_, err := b.Acquire(t.Context(), "x")
		waiting <- err
	}()
	pgtest.WaitFor(t, "b to wait", func() bool { return marks(t, dsn) == 1 })
	pgtest.Must(t, server.Restart(pgtest.Fast))
	after(t, h.Context().Done(), "the hold to end")
	matches(t, h.Err(), pgmutex.ErrLost)
	pgtest.Must(t, <-waiting) // the wait goes on by itself, and whoever comes first is served
	mustBusy(t, a, "x")
}

// TestReplyCutOff: the server has granted the lock and its answer never comes. The
// session ends, and the lock with it; nobody is told that he holds it.
func TestReplyCutOff(t *testing.T) {
	dsn := pgtest.Shared(t).Database(t)
	proxy := faultconn.New(t, pgtest.Shared(t).Addr())
	a, b := open(t, proxy.DSN(dsn), "a", pgmutex.Options{}), open(t, dsn, "b", pgmutex.Options{})
	other := take(t, a, "other")
	proxy.HoldReplies()
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := a.TryAcquire(ctx, "x")
		result <- err
	}()
	pgtest.WaitFor(t, "the lock to be granted", func() bool { return locksOf(t, dsn, "x") == 1 })
	proxy.Cut()
	err := <-result
	cancel()
	if err == nil || errors.Is(err, pgmutex.ErrHeld) {
		t.Errorf("got %v", err)
	}
	after(t, other.Context().Done(), "the other hold to end")
	proxy.ReleaseReplies()
	pgtest.WaitFor(t, "the lock to be free", func() bool { return locksOf(t, dsn, "x") == 0 })
	take(t, b, "x")
}

// TestSessionThatEndsWhileItIsMade: nobody is given one that is over already, and
// waits for it for ever.
func TestSessionThatEndsWhileItIsMade(t *testing.T) {
	dsn := pgtest.Shared(t).Database(t)
	proxy := faultconn.New(t, pgtest.Shared(t).Addr())
	c := open(t, proxy.DSN(dsn), "a", pgmutex.Options{Lazy: true})
	trap := proxy.CutAfter(faultconn.CommandComplete("LISTEN"))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	h, err := c.TryAcquire(ctx, "x")
	if h != nil || err == nil || ctx.Err() != nil {
		t.Errorf("got %v, %v, %v", h, err, ctx.Err())
	}
	<-trap.Sprung()
	take(t, c, "x")
}
