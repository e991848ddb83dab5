//go:build faults && long

package faults

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/advisory"
	"github.com/pgmutex/pgmutex/internal/pgtest"
	"github.com/pgmutex/pgmutex/lease"
)

// engines are the worlds of both.
var engines = map[string]func(testing.TB, *pgtest.Server) *world{"lease": newWorld, "advisory": newSessions}

// Row 14: one killed backend makes the server throw out all sessions and recover.
func TestN14KilledBackend(t *testing.T) {
	for name, fresh := range engines {
		t.Run(name, func(t *testing.T) {
			s := storm{seed: seed(t), length: length(t, 20*time.Second), clients: 4, workers: 2, locks: 4, every: 500 * time.Millisecond, faults: prompt}
			// Recovery begins when every connection has ended that has not yet said
			// who it is, and some of ours never do.
			w := fresh(t, pgtest.New(t, pgtest.Options{Settings: map[string]string{"authentication_timeout": "'2s'"}}))
			w.promise(trusted)
			calm := w.client("calm")
			s.blow(w, func(ctx context.Context) {
				for ctx.Err() == nil {
					pass(ctx, 4*time.Second)
					h, err := calm.take(context.WithoutCancel(ctx), "all-along", true)
					if err != nil {
						continue // the server is recovering still
					}
					var pid int32
					w.quietlyScan(ctx, `SELECT pid FROM pg_stat_activity WHERE datname = current_database()
						AND application_name LIKE 'pgmutex%' ORDER BY random() LIMIT 1`, &pid)
					if pid != 0 && w.server.SignalBackend(pid, syscall.SIGKILL) == nil {
						w.history.add(call{Op: "killed", Start: now()})
						if w.sessions {
							h.lostWithin(slack)
						}
					}
					_ = h.end(context.WithoutCancel(ctx))
				}
			})
			w.judge(demand{"acquire granted", "write committed", "killed", "lost"})
		})
	}
}

// promise sets the overlap that the advisory engine documents for sessions that a
// server ends while its client is kept from hearing of it.
func (w *world) promise(d time.Duration) {
	if w.sessions {
		w.allowed = d
	}
}

// quietlyScan asks for one value of a server that may not answer.
func (w *world) quietlyScan(ctx context.Context, sql string, value any) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if conn, err := w.clients[0].app.Acquire(ctx); err == nil {
		defer conn.Release()
		_ = conn.QueryRow(ctx, sql).Scan(value)
	}
}

// Row 16: postmaster and children are killed. Whatever was granted and not given
// back is there after recovery, and nothing that was given back.
func TestN16KilledServer(t *testing.T) {
	w := newWorld(t, pgtest.New(t, pgtest.Options{Durable: true}))
	c, keeper := w.client("c", longTimes), w.client("keeper", longTimes)
	kept := keeper.must("all-along")
	for round := range 4 {
		var mu sync.Mutex
		var granted, released []string
		stop := make(chan struct{})
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					name := fmt.Sprintf("job-%d-%d-%d", round, i, n)
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
					h, err := c.take(ctx, name, false)
					cancel()
					if err != nil {
						pass(t.Context(), 10*time.Millisecond)
						continue
					}
					give := n%2 == 0 && h.end(t.Context()) == nil
					mu.Lock()
					if give {
						released = append(released, name)
					} else if h.Held() {
						granted = append(granted, name)
					}
					mu.Unlock()
				}
			})
		}
		pass(t.Context(), time.Duration(1000+300*round)*time.Millisecond)
		pgtest.Must(t, w.server.Kill())
		w.history.add(call{Op: "killed", Start: now()})
		close(stop)
		all.Wait()
		pgtest.Must(t, w.server.Start())
		there := pgtest.Column[string](t, w.dsn, "SELECT lock_name FROM mutex_lock")
		for _, name := range granted {
			if !slices.Contains(there, name) && c.IsHeld(name) {
				t.Errorf("round %d: %q was granted and is gone", round, name)
			}
		}
		for _, name := range released {
			if slices.Contains(there, name) {
				t.Errorf("round %d: %q was given back and is there", round, name)
			}
		}
		pgtest.WaitFor(t, "the hold to be renewed", func() bool { return kept.Heartbeat(t.Context()) == nil })
		if !kept.look() {
			t.Fatalf("lost: %v", kept.Err())
		}
		t.Logf("round %d: %d granted, %d given back", round, len(granted), len(released))
		if len(granted) == 0 || len(released) == 0 {
			t.Error("vacuous: nothing was granted")
		}
		_, err := c.ReleaseAll(t.Context())
		pgtest.Must(t, err)
	}
	pgtest.Must(t, kept.end(t.Context()))
}

// Row 50: a transaction that keeps an old snapshot, so that no version of a row
// can be removed.
func TestN50OldSnapshot(t *testing.T) {
	w := newWorld(t, nil)
	var mu sync.Mutex
	var took []time.Duration
	c := w.client("c", func(o *pgmutex.Options) {
		o.StaleAfter, o.Heartbeat = 30*time.Second, time.Second // two minutes of it are twenty at the defaults
		o.Hooks[0].Heartbeat = func(_ context.Context, e pgmutex.Event) {
			mu.Lock()
			defer mu.Unlock()
			took = append(took, e.Took)
		}
	})
	for i := range 100 {
		c.must(fmt.Sprint("job-", i))
	}
	quantiles := func() (n int, p50, p99 time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(took)
		n, p50, p99 = len(took), took[len(took)/2], took[len(took)*99/100]
		took = nil
		return n, p50, p99
	}
	pass(t.Context(), 10*time.Second)
	_, usual50, usual99 := quantiles()
	old := w.blocker("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
	pgtest.Exec(t, old, "SELECT * FROM mutex_lock")
	size := func() int64 { return pgtest.One[int64](t, w.dsn, "SELECT pg_total_relation_size('mutex_lock')") }
	before := size()
	pass(t.Context(), length(t, 2*time.Minute))
	n, p50, p99 := quantiles()
	t.Logf("heartbeats=%d p50=%v p99=%v, without p50=%v p99=%v, size=%d->%d", n, p50, p99, usual50, usual99, before, size())
	if p99 > max(50*time.Millisecond, 2*usual99) { // a busy machine has its own
		t.Errorf("p99 of heartbeats: %v", p99)
	}
	if held := c.HeldCount(); held != 100 {
		t.Errorf("%d of 100 are held", held)
	}
	_, err := c.ReleaseAll(t.Context())
	pgtest.Must(t, err)
}

// Row 52: strangers lock rows in crossed order, beside batches of acquisitions,
// renewals and releases.
func TestN52DeadlockBait(t *testing.T) {
	w := newWorld(t, pgtest.New(t, pgtest.Options{Settings: map[string]string{"deadlock_timeout": "'20ms'"}}))
	c := w.client("c", longTimes)
	var holds []*holding
	for i := range 10 {
		holds = append(holds, c.must(fmt.Sprint("held-", i)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), length(t, 20*time.Second))
	defer cancel()
	var all sync.WaitGroup
	s := storm{seed: seed(t)}
	for i := range 6 {
		all.Go(func() {
			rng := s.source("bait", i)
			for ctx.Err() == nil {
				first, second := rng.IntN(10), rng.IntN(10)
				kind := []string{"held-", "job-"}[rng.IntN(2)]
				w.quietly(ctx, `SELECT 1 FROM mutex_lock WHERE lock_name = $1 FOR UPDATE`, func() {}, fmt.Sprint(kind, first))
				w.crossed(ctx, fmt.Sprint(kind, first), fmt.Sprint(kind, second))
			}
		})
	}
	for i := range 20 {
		all.Go(func() {
			for ctx.Err() == nil {
				h, err := c.take(context.WithoutCancel(ctx), fmt.Sprint("job-", i%10), i%2 == 0)
				if err == nil {
					pass(ctx, 5*time.Millisecond)
					err = h.end(context.WithoutCancel(ctx))
				}
				if err != nil && !errors.Is(err, pgmutex.ErrHeld) {
					w.violation("job-%d: %v", i%10, err)
				}
			}
		})
	}
	all.Wait()
	for _, h := range holds {
		if !h.look() {
			t.Errorf("lost: %v", h.Err())
		}
		pgtest.Must(t, h.end(t.Context()))
	}
	deadlocks := pgtest.One[int64](t, w.dsn, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
	t.Logf("deadlocks=%d", deadlocks)
	if deadlocks == 0 {
		t.Error("vacuous: there was no deadlock")
	}
	w.judge(demand{"acquire granted", "acquire held"})
}

// crossed locks two rows, one after the other.
func (w *world) crossed(ctx context.Context, first, second string) {
	tx, err := w.clients[0].app.Begin(context.WithoutCancel(ctx))
	if err != nil {
		return
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	for _, name := range []string{first, second} {
		if _, err := tx.Exec(context.WithoutCancel(ctx), `UPDATE mutex_lock SET waiting = waiting WHERE lock_name = $1`, name); err != nil {
			return
		}
		pass(ctx, 5*time.Millisecond)
	}
}

// Row 53, the load: transactions are serializable unless they say otherwise.
func TestN53Serializable(t *testing.T) {
	s := storm{seed: seed(t), length: length(t, 20*time.Second), clients: 5, workers: 3, locks: 5, every: 200 * time.Millisecond, faults: everything, cut: 0.05}
	w := newWorld(t, nil)
	w.dsn = pgtest.With(w.dsn, "default_transaction_isolation", "serializable")
	s.blow(w)
	w.judge(demand{"acquire granted", "takeover", "lost", "write committed", "fault"})
}

// Row 56: another role takes most of the server's lock table, then all of it. With
// some room left everything goes on; with none, a transaction cannot even have its
// number, and says so.
func TestN56FullLockTable(t *testing.T) {
	w := newWorld(t, pgtest.New(t, pgtest.Options{}))
	c := w.client("c", longTimes)
	h := c.must("job")
	pgtest.Must(t, h.Heartbeat(t.Context()))
	sessions, err := advisory.Open(t.Context(), w.dsn, nil)
	pgtest.Must(t, err)
	first, err := sessions.TryAcquire(t.Context(), "first")
	pgtest.Must(t, err)
	stranger, taken := pgtest.Conn(t, w.dsn), 0
	for ; err == nil; taken += 100 {
		_, err = stranger.Exec(t.Context(), "SELECT count(pg_advisory_lock($1 + n)) FROM generate_series(1, 100) AS n", taken)
	}
	pgtest.Exec(t, stranger, "SELECT count(pg_advisory_unlock(n)) FROM generate_series(1, 500) AS n")
	t.Logf("the stranger has about %d locks", taken-500)
	for n := range 50 {
		g, err := c.take(t.Context(), fmt.Sprint("more-", n), false)
		pgtest.Must(t, err)
		pgtest.Must(t, g.end(t.Context()))
		s, err := sessions.TryAcquire(t.Context(), fmt.Sprint("more-", n))
		pgtest.Must(t, err)
		pgtest.Must(t, s.Release(t.Context()))
	}
	pgtest.Must(t, h.Heartbeat(t.Context()))

	err = nil
	for n := 1_000_000; err == nil; n++ {
		_, err = stranger.Exec(t.Context(), "SELECT pg_advisory_lock($1)", n)
	}
	w.history.add(call{Op: "fault", Outcome: "lock table full", Start: now()})
	refused := map[string]int{}
	honest := func(engine string, err error) {
		switch {
		case err == nil:
		case errors.Is(err, pgmutex.ErrHeld), errors.Is(err, pgmutex.ErrUnknown), !strings.Contains(err.Error(), "53200"):
			t.Errorf("%s: %v", engine, err)
		default:
			refused[engine]++
		}
	}
	for n := range 50 {
		_, err := c.take(t.Context(), fmt.Sprint("more-", n), false)
		honest("lease", err)
		_, err = sessions.TryAcquire(t.Context(), fmt.Sprint("more-", n))
		honest("advisory", err)
		if err != nil && !strings.Contains(err.Error(), "max_locks_per_transaction") {
			t.Errorf("advisory: %v", err)
		}
	}
	another, err := lease.Open(t.Context(), w.dsn, nil)
	honest("new client", err)
	if another != nil {
		_ = another.Close(t.Context())
	}
	if len(refused) != 3 {
		t.Errorf("vacuous: refused were %v", refused)
	}
	if err := first.Heartbeat(t.Context()); err != nil {
		t.Errorf("a refused lock ended the session: %v", err)
	}
	pgtest.Exec(t, stranger, "SELECT pg_advisory_unlock_all()")
	pgtest.Must(t, h.Heartbeat(t.Context()))
	if !h.look() {
		t.Errorf("lost: %v", h.Err())
	}
	pgtest.Must(t, h.end(t.Context()))
	_, err = sessions.ReleaseAll(t.Context())
	pgtest.Must(t, err)
	pgtest.Must(t, sessions.Close(t.Context()))
	_, err = c.ReleaseAll(t.Context())
	pgtest.Must(t, err)
	w.judge(demand{"acquire granted", "acquire failed"})
}

// Row 58: a thousand wait for one lock. The server's share of the machine is that of
// the time in which most of them wait still.
func TestN58Herd(t *testing.T) {
	for name, fresh := range engines {
		t.Run(name, func(t *testing.T) {
			w := fresh(t, nil)
			w.crowd = true
			var mu sync.Mutex
			var waits []time.Duration
			var all sync.WaitGroup
			half := make(chan struct{}) // have been served
			gate := w.client("gate", minutes)
			first := gate.must("job")
			for i := range 10 {
				c := w.client(fmt.Sprintf("c%d", i), minutes)
				for range 100 {
					all.Go(func() {
						began := now()
						h, err := c.take(t.Context(), "job", true)
						if err != nil {
							w.violation("acquire: %v", err)
							return
						}
						mu.Lock()
						if waits = append(waits, h.began-began); len(waits) == 500 {
							close(half)
						}
						mu.Unlock()
						pass(t.Context(), 10*time.Millisecond)
						if err := h.end(t.Context()); err != nil {
							w.violation("release: %v", err)
						}
					})
				}
			}
			pass(t.Context(), time.Second)
			before, known := w.serverCPU()
			began := now()
			pgtest.Must(t, first.end(t.Context()))
			served := make(chan struct{})
			go func() { all.Wait(); close(served) }()
			select {
			case <-half:
			case <-served:
			}
			after, _ := w.serverCPU()
			steady := now() - began
			<-served
			slices.Sort(waits)
			if len(waits) != 1000 {
				t.Fatalf("%d were served", len(waits))
			}
			median, longest := waits[500], waits[999]
			t.Logf("1000 served in %v, waited median %v, longest %v", now()-began, median, longest)
			if longest > 20*median {
				t.Errorf("the longest wait is %v, the median %v", longest, median)
			}
			if known {
				share := float64(after-before) / float64(steady) / float64(runtime.NumCPU())
				t.Logf("the server had %v of %d processors in %v, %.0f %%", after-before, runtime.NumCPU(), steady, 100*share)
				if after == before {
					t.Error("vacuous: the server had no processor time")
				}
				if share > 0.8 {
					t.Errorf("the server takes %.0f %% of the machine", 100*share)
				}
			}
			w.judge(demand{"acquire granted"})
		})
	}
}
