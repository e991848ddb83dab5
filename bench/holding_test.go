//go:build bench

package bench

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/advisory"
	"github.com/pgmutex/pgmutex/internal/pgtest"
	"github.com/pgmutex/pgmutex/lease"
	"github.com/pgmutex/pgmutex/local"
	"github.com/pgmutex/pgmutex/memory"
)

const beat = 2 * time.Second

// manyHolds is what many locks cost the process that holds them and its server.
func (m *match) manyHolds() {
	for _, c := range entered("holds") {
		n := m.holds
		if c.most > 0 {
			n = min(n, c.most)
		}
		r, through := newRelay(m.T, m.at, c.store)
		child := newChild(m.T, c, through, beat)
		child.answer("ready")
		before := child.ask("stats", "stats")
		took := time.Duration(child.ask("taken", "take %s %d", c.key("hold"), n)[0])
		after := child.ask("stats", "stats")
		open := float64(r.open.Load())
		sent := r.requests.Load()
		child.ask("renewed", "renew")
		requests := float64(r.requests.Load() - sent)
		if requests == 0 { // it renews by itself
			if m.intervals > 1 { // the first time may be special
				time.Sleep(beat)
				sent = r.requests.Load()
			}
			time.Sleep(time.Duration(m.intervals) * beat)
			requests = float64(r.requests.Load()-sent) / float64(m.intervals)
		}
		m.add("holds", c.name, float64(n), float64(n)/took.Seconds(), open, float64(max(0, after[1]-before[1])),
			requests, float64(after[0]-before[0])/float64(n)/1024)
		child.end()
		r.close()
	}
}

// renewal is the time of one renewal of all holds, as the hook tells it, beside a
// plain UPDATE of as many rows, which runs at some moment between two of them.
func (m *match) renewal() {
	var mu sync.Mutex
	beats := map[time.Time]time.Duration{} // those of one statement have one start
	c, err := lease.Open(m.Context(), m.at[postgres], &pgmutex.Options{
		Heartbeat: beat,
		Hooks: []pgmutex.Hooks{{Heartbeat: func(_ context.Context, e pgmutex.Event) {
			if e.Err == nil {
				mu.Lock()
				beats[e.Start] = e.Took
				mu.Unlock()
			}
		}}},
	})
	pgtest.Must(m.T, err)
	defer c.Close(context.Background())
	var wg sync.WaitGroup
	var next atomic.Int64
	for range 64 {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(m.holds); i = next.Add(1) {
				if _, err := c.Acquire(m.Context(), fmt.Sprint("renewal", i)); err != nil {
					m.Error(err)
				}
			}
		})
	}
	wg.Wait()
	pgtest.Exec(m.T, m.conn, `CREATE TABLE plain (name text PRIMARY KEY, beat timestamptz NOT NULL DEFAULT now()) WITH (fillfactor = 50)`)
	pgtest.Exec(m.T, m.conn, `INSERT INTO plain SELECT 'renewal' || i FROM generate_series(1, $1::int) i`, m.holds)
	seen := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(beats)
	}
	var updates []time.Duration
	for range m.renewals {
		n := seen()
		pgtest.WaitFor(m.T, "a renewal", func() bool { return seen() > n })
		time.Sleep(rand.N(beat / 2))
		updates = append(updates, timed(func() { pgtest.Exec(m.T, m.conn, `UPDATE plain SET beat = now()`) }))
	}
	var renewals []time.Duration
	mu.Lock()
	for _, d := range beats {
		renewals = append(renewals, d)
	}
	mu.Unlock()
	pgtest.Must(m.T, func() error { _, err := c.ReleaseAll(m.Context()); return err }())
	m.add("renewal", "raw UPDATE", ms(median(updates)), 1)
	m.add("renewal", leaseName, ms(median(renewals)), ratio(median(renewals), median(updates)))
}

// held asks each whether it still holds the lock.
func (m *match) held() {
	pgtest.Must(m.T, flag.Set("test.benchtime", m.benchtime.String()))
	ask := func(name string, held func() bool) {
		if !held() {
			m.Fatalf("%s: not held", name)
		}
		r := testing.Benchmark(func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				held()
			}
		})
		m.add("held", name, float64(r.T.Nanoseconds())/float64(r.N), float64(r.AllocsPerOp()))
	}
	ctx := m.Context()
	for _, o := range []struct {
		name string
		open func() (*pgmutex.Client, error)
	}{
		{leaseName, func() (*pgmutex.Client, error) { return lease.Open(ctx, m.at[postgres], nil) }},
		{advisoryName, func() (*pgmutex.Client, error) { return advisory.Open(ctx, m.at[postgres], nil) }},
		{"pgmutex local", func() (*pgmutex.Client, error) { return local.Open(ctx, m.at[file], nil) }},
		{"pgmutex memory", func() (*pgmutex.Client, error) { return memory.New().Open(ctx, nil) }},
	} {
		c, err := o.open()
		pgtest.Must(m.T, err)
		h, err := c.Acquire(ctx, "held")
		pgtest.Must(m.T, err)
		ask(o.name, h.Held)
		pgtest.Must(m.T, h.Release(ctx))
		pgtest.Must(m.T, c.Close(ctx))
	}

	r := redis.NewClient(&redis.Options{Addr: m.at[redisMemory]})
	defer r.Close()
	mutex := redsync.New(goredis.NewPool(r)).NewMutex("held", redsync.WithExpiry(expiry))
	pgtest.Must(m.T, mutex.LockContext(ctx))
	ask("redsync", func() bool { return time.Now().Before(mutex.Until()) })

	e, err := etcdClient(m.at[etcdServer])
	pgtest.Must(m.T, err)
	defer e.Close()
	session, err := concurrency.NewSession(e)
	pgtest.Must(m.T, err)
	ask("etcd concurrency.Mutex", func() bool {
		select {
		case <-session.Done():
			return false
		default:
			return true
		}
	})
}
