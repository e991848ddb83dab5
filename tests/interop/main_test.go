//go:build interop

package interop

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/pgtest"
	"github.com/pgmutex/pgmutex/lease"
)

func TestMain(m *testing.M) {
	if job := os.Getenv(workerJob); job != "" {
		os.Exit(work(job))
	}
	pgtest.Main(m)
}

// agreed is the threshold that both sides agree on where a test does not say
// otherwise: long enough for a busy machine, and aged, never waited for.
const agreed = 12 * time.Second

func must(t testing.TB, err error) {
	t.Helper()
	pgtest.Must(t, err)
}

// onBothTables runs a test on a table that Python made, while it held a lock in
// it, and on one of ours.
func onBothTables(t *testing.T, test func(t *testing.T, dsn string)) {
	t.Run("table made by Python", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.Shared(t).Database(t)
		witness := startPeer(t, dsn, "witness", "witness", within(agreed))
		witness.do("create", nil)
		if !witness.try() {
			t.Fatal("the first lock in an empty table was not granted")
		}
		must(t, lease.Migrate(t.Context(), dsn, nil))
		test(t, dsn)
		// Whatever happened beside it, it is still a holder like any other.
		witness.do("heartbeat", nil)
		witness.do("release", nil)
	})
	t.Run("table made by us", func(t *testing.T) {
		t.Parallel()
		test(t, ours(t))
	})
}

// ours makes a database with our table.
func ours(t *testing.T) string {
	t.Helper()
	dsn := pgtest.Shared(t).Database(t)
	must(t, lease.Migrate(t.Context(), dsn, nil))
	return dsn
}

// A goSide is a client and what its hooks were told.
type goSide struct {
	*pgmutex.Client
	*record
}

// open makes a client that has agreed on the threshold, unless peers says
// otherwise.
func open(t testing.TB, dsn, label string, peers *lease.Options, opts pgmutex.Options) goSide {
	t.Helper()
	if peers == nil {
		peers = &lease.Options{PeerStaleAfter: agreed}
	}
	if opts.StaleAfter == 0 {
		opts.StaleAfter = agreed
	}
	eng, err := lease.New(dsn, peers)
	must(t, err)
	return openOn(t, eng, label, opts)
}

// openOn makes a client on an engine.
func openOn(t testing.TB, eng engine.Engine, label string, opts pgmutex.Options) goSide {
	t.Helper()
	rec := newRecord(t, label)
	tell := func(what string) func(context.Context, pgmutex.Event) {
		return func(_ context.Context, e pgmutex.Event) { rec.add(what, e.Rival) }
	}
	opts.HolderID = label
	opts.Hooks = []pgmutex.Hooks{{
		Acquired: tell("acquired"), TakenOver: tell("taken over"), Contended: tell("contended"),
		Alert: tell("alert"), Lost: tell("lost"), Released: tell("released"),
	}}
	client, err := pgmutex.New(t.Context(), eng, &opts)
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), bound)
		defer cancel()
		_, _ = client.ReleaseAll(ctx) // what the test left, which it may also have lost
		if err := client.Close(ctx); err != nil {
			t.Errorf("close %s: %v", label, err)
		}
	})
	return goSide{client, rec}
}

// take is TryAcquire that has to succeed.
func (g goSide) take(t testing.TB, name string) *pgmutex.Hold {
	t.Helper()
	h, err := g.TryAcquire(t.Context(), name)
	must(t, err)
	return h
}

// busy is TryAcquire that has to find holder.
func (g goSide) busy(t testing.TB, name, holder string) *pgmutex.HeldError {
	t.Helper()
	_, err := g.TryAcquire(t.Context(), name)
	var held *pgmutex.HeldError
	if !errors.Is(err, pgmutex.ErrHeld) || !errors.As(err, &held) {
		t.Fatalf("%s tried %q: %v, want it to be held", g.name, name, err)
	}
	if held.Holder != holder {
		t.Errorf("%q is held by %q, want %q", name, held.Holder, holder)
	}
	return held
}

// A wait is an Acquire under way.
type wait struct {
	done chan struct{}
	hold *pgmutex.Hold
	err  error
}

// wait starts an Acquire and returns once it has found the lock held.
func (g goSide) wait(t testing.TB, name string) *wait {
	t.Helper()
	seen := g.count("contended")
	w := g.start(t.Context(), name, 0)
	g.await("contended", seen)
	return w
}

// start starts an Acquire with a limit.
func (g goSide) start(ctx context.Context, name string, limit time.Duration) *wait {
	w := &wait{done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.hold, w.err = g.With(pgmutex.AcquireOptions{Wait: limit}).Acquire(ctx, name)
	}()
	return w
}

// granted waits for the end of the wait.
func (w *wait) granted(t testing.TB) *pgmutex.Hold {
	t.Helper()
	happens(t, w.done, "the end of the wait")
	must(t, w.err)
	return w.hold
}

// happens waits for ch to be closed.
func happens(t testing.TB, ch <-chan struct{}, what string) {
	t.Helper()
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case <-ch:
	case <-timer.C:
		t.Fatalf("waited %v in vain for %s", bound, what)
	}
}

func happened(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// age makes the row of name as old as d.
func age(t testing.TB, dsn, name string, d time.Duration) {
	t.Helper()
	n := pgtest.Exec(t, dsn, `UPDATE mutex_lock SET last_heartbeat = clock_timestamp() - $2::bigint * interval '1 microsecond'
		WHERE lock_name = $1`, name, d.Microseconds())
	if n != 1 {
		t.Fatalf("%q has %d rows", name, n)
	}
}

// holderOf returns the instance_id in the row of name.
func holderOf(t testing.TB, dsn, name string) string {
	t.Helper()
	return pgtest.One[string](t, dsn, "SELECT instance_id FROM mutex_lock WHERE lock_name = $1", name)
}

// blocked returns when a Python process stands behind somebody's row lock.
func blocked(t testing.TB, dsn string) {
	t.Helper()
	pgtest.WaitFor(t, "Python to wait for the row", func() bool {
		return pgtest.One[int64](t, dsn, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%FOR UPDATE%'`) == 1
	})
}
