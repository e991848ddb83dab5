//go:build soak

package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/internal/pgtest"
	"github.com/pgmutex/pgmutex/lease"
)

// A gauge is something that must not grow: by more than a third, beyond slack.
type gauge struct {
	name  string
	slack float64
	read  func() float64
	seen  []float64
}

// grown compares the last third of what was seen with the one before. The first
// third is for warming up.
func (g *gauge) grown() (before, after float64, grown bool) {
	n := len(g.seen) / 3
	middle := func(s []float64) float64 {
		s = slices.Clone(s)
		slices.Sort(s)
		return s[len(s)/2]
	}
	before, after = middle(g.seen[n:2*n]), middle(g.seen[2*n:])
	return before, after, after > before*4/3+g.slack
}

// TestSoak works with both engines under few faults, for as long as
// PGMUTEX_FAULTS_LENGTH says, and looks whether anything grows.
func TestSoak(t *testing.T) {
	total := length(t, 4*time.Hour)
	s := storm{seed: seed(t)}
	// So that a short run sees what a long one comes to: the default is a minute.
	server := pgtest.New(t, pgtest.Options{Settings: map[string]string{"autovacuum_naptime": "'5s'"}})
	worlds := []*world{newWorld(t, server), newSessions(t, server)}
	ctx, cancel := context.WithTimeout(t.Context(), total)
	defer cancel()
	var all sync.WaitGroup
	var cycles, waits, failures, faults atomic.Int64
	for n, w := range worlds {
		var clients []*client
		for i := range 4 {
			c := w.client(fmt.Sprintf("c%d", i), func(o *pgmutex.Options) {
				o.StaleAfter, o.Heartbeat = 30*time.Second, 250*time.Millisecond
			})
			clients = append(clients, c)
			all.Go(func() { keep(ctx, c, i) })
			for j := range 4 {
				rng := s.source("soak", n*1000+i*100+j)
				all.Go(func() {
					for ctx.Err() == nil {
						waited, err := churn(ctx, c, rng)
						switch {
						case err != nil:
							failures.Add(1)
						case waited:
							waits.Add(1)
						}
						cycles.Add(1)
					}
				})
			}
		}
		rng := s.source("weather", n)
		kinds := append([]string{"terminate"}, prompt...)
		all.Go(func() {
			for ctx.Err() == nil {
				pass(ctx, 2*time.Second)
				faults.Add(1)
				w.fault(ctx, clients[rng.IntN(4)], kinds[rng.IntN(len(kinds))], time.Duration(rng.IntN(500))*time.Millisecond, rng.IntN(100), "lock-0")
			}
		})
	}
	db := pgtest.Conn(t, worlds[0].dsn)
	stat := func(sql string) func() float64 { return func() float64 { return pgtest.One[float64](t, db, sql) } }
	gauges := []*gauge{
		{name: "heap_MB", slack: 8, read: func() float64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return float64(m.HeapAlloc) / 1e6
		}},
		{name: "goroutines", slack: 40, read: func() float64 { return float64(runtime.NumGoroutine()) }},
		{name: "descriptors", slack: 30, read: func() float64 {
			list, err := os.ReadDir("/proc/self/fd")
			if err != nil {
				return 0 // elsewhere than on Linux
			}
			return float64(len(list))
		}},
		{name: "sessions", slack: 10, read: stat(`SELECT count(*)::float8 FROM pg_stat_activity WHERE application_name LIKE 'pgmutex%'`)},
		{name: "lock_MB", slack: 2, read: stat(`SELECT pg_total_relation_size('mutex_lock') / 1e6::float8`)},
		{name: "waiter_MB", slack: 2, read: stat(`SELECT pg_total_relation_size('mutex_lock_waiter') / 1e6::float8`)},
	}
	const hot = `SELECT COALESCE(n_tup_hot_upd / NULLIF(n_tup_upd, 0)::float8, 0) FROM pg_stat_user_tables WHERE relname = 'mutex_lock'`
	every := max(total/60, 3*time.Second)
	for began := time.Now(); ctx.Err() == nil; {
		pass(ctx, every)
		line := fmt.Sprintf("%v cycles=%d waits=%d failed=%d faults=%d hot=%.4f history_MB=%.1f", time.Since(began).Round(time.Second),
			cycles.Load(), waits.Load(), failures.Load(), faults.Load(), stat(hot)(), stat(`SELECT pg_total_relation_size('mutex_lock_event') / 1e6::float8`)())
		for _, g := range gauges {
			v := g.read()
			g.seen = append(g.seen, v)
			line += fmt.Sprintf(" %s=%.1f", g.name, v)
		}
		t.Log(line)
	}
	all.Wait()
	for _, g := range gauges {
		if before, after, grown := g.grown(); grown {
			t.Errorf("%s grows: %.1f, then %.1f", g.name, before, after)
		}
	}
	if ratio := stat(hot)(); ratio < 0.9 {
		t.Errorf("HOT updates: %.4f of all", ratio)
	}
	if cycles.Load() == 0 || waits.Load() == 0 || faults.Load() == 0 {
		t.Error("vacuous")
	}
	for _, w := range worlds {
		for _, c := range w.clients {
			c.heal()
			_, _ = c.ReleaseAll(context.WithoutCancel(t.Context()))
			c.shut()
			c.app.Close()
		}
		w.most = 64 << 20 // what thousands of cycles a second leave between two rounds of autovacuum
		w.clean()
	}
}

// keep holds fifty locks all the time, and takes again what was lost.
func keep(ctx context.Context, c *client, n int) {
	for ctx.Err() == nil {
		for i := range 50 {
			name := fmt.Sprintf("kept-%d-%d", n, i)
			if !c.IsHeld(name) {
				_, _ = c.TryAcquire(ctx, name)
			}
		}
		pass(ctx, time.Second)
	}
}

// churn takes one of a thousand locks, now and then one that many want, works in a
// guarded transaction now and then, and gives it back.
func churn(ctx context.Context, c *client, rng *rand.Rand) (waited bool, err error) {
	name, waited := fmt.Sprint("job-", rng.IntN(1000)), rng.IntN(20) == 0
	if waited {
		name = fmt.Sprint("hot-", rng.IntN(3))
	}
	attempt, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err = c.Do(attempt, name, func(ctx context.Context) error {
		if waited {
			pass(ctx, 5*time.Millisecond)
		}
		if rng.IntN(10) > 0 || c.w.sessions {
			return nil
		}
		return pgx.BeginFunc(ctx, c.app, func(tx pgx.Tx) error { return lease.Guard(ctx, tx) })
	})
	if err != nil && !errors.Is(err, pgmutex.ErrHeld) {
		pass(ctx, 20*time.Millisecond)
	}
	return waited, err
}
