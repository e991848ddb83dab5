//go:build bench

package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/advisory"
	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/faultconn"
	"github.com/pgmutex/pgmutex/internal/pgtest"
	"github.com/pgmutex/pgmutex/lease"
)

// TestQuick prints the figures that the documentation claims, each with its
// bound.
func TestQuick(t *testing.T) {
	l := newLab(t)
	l.single()
	l.busy()
	l.busyTogether(16, 5)
	l.throughput(64, 5)
	l.throughput(256, 5)
	l.advisory()
	l.handOver()
	l.herd(10, 100)
	l.manyHolds(10_000)
	l.renewal(10_000)
	l.held()
}

// single is one goroutine's cycle beside the two statements that it cannot do
// without, and, for information, beside those of a table that says less.
func (l *lab) single() {
	c := l.client(l.dsn, nil)
	cycle := func() {
		h, err := c.Acquire(l.Context(), "x")
		pgtest.Must(l.T, err)
		pgtest.Must(l.T, h.Release(l.Context()))
	}
	ours, raw := alternate(400, cycle, l.cycle)
	some, narrow := alternate(200, cycle, l.narrow)
	fmt.Printf("# one goroutine: cycle %s, the same rows by hand %s; beside a table of a name and a time %.2f times as long\n",
		ours, raw, ratio(some, narrow))
	l.report("lease-cycle", ratio(ours, raw), "×raw", "<=", 1.15)
}

// advisory is one goroutine's cycle of an advisory lock beside two statements that
// do nothing. That takes so little that it depends on the processors on which the
// system lets two server processes run; hence several pairs of them.
func (l *lab) advisory() {
	var ours, raws []time.Duration
	for range 24 {
		c, err := advisory.Open(l.Context(), l.dsn, nil)
		pgtest.Must(l.T, err)
		raw := pgtest.Conn(l.T, l.dsn)
		some, twice := alternate(100, func() {
			h, err := c.Acquire(l.Context(), "x")
			pgtest.Must(l.T, err)
			pgtest.Must(l.T, h.Release(l.Context()))
		}, func() {
			for range 2 {
				pgtest.Exec(l.T, raw, "SELECT 1")
			}
		})
		pgtest.Must(l.T, c.Close(l.Context()))
		ours, raws = append(ours, some), append(raws, twice)
	}
	l.report("advisory-cycle", ratio(median(ours), median(raws)), "×2 SELECT 1", "<=", 1.2)
}

const upsertSQL = `INSERT INTO raw AS r (name) VALUES ($1)
	ON CONFLICT (name) DO UPDATE SET beat = now() WHERE r.beat < now() - interval '1 hour'`

// busy is single tries that find the lock held: what one writes, and, for
// information, how it compares with an upsert that locks the row.
func (l *lab) busy() {
	holder, c := l.client(l.dsn, nil), l.client(l.dsn, nil)
	h, err := holder.Acquire(l.Context(), "busy")
	pgtest.Must(l.T, err)
	defer h.Release(l.Context())
	pgtest.Exec(l.T, l.raw, `INSERT INTO raw (name) VALUES ('busy')`)
	try := func() {
		if _, err := c.TryAcquire(l.Context(), "busy"); err == nil {
			l.Fatal("two holders")
		}
	}
	ours, upsert := alternate(300, try, func() { pgtest.Exec(l.T, l.raw, upsertSQL, "busy") })
	fmt.Printf("# one goroutine: busy try %s, upsert %s\n", ours, upsert)

	// Other work of the server writes, too: the least of some windows counts.
	least := int64(1 << 62)
	for range 5 {
		before := pgtest.WALBytes(l.T, l.raw)
		for range 100 {
			try()
		}
		least = min(least, pgtest.WALBytes(l.T, l.raw)-before)
	}
	l.report("busy-try-wal", float64(least), "bytes", "<=", 0)
}

// busyTogether is tries by n goroutines at once, all at one name that somebody
// else holds, beside as many upserts through as many connections. That is when
// tries are many: an upsert holds the row until its commit, and a try reads it.
func (l *lab) busyTogether(n int, bound float64) {
	holder, c := l.client(l.dsn, nil), l.client(l.dsn, nil)
	pool := l.pool(n)
	for i := range n {
		name := fmt.Sprintf("w%d", i)
		h, err := holder.Acquire(l.Context(), name)
		pgtest.Must(l.T, err)
		defer h.Release(l.Context())
		pgtest.Exec(l.T, l.raw, `INSERT INTO raw (name) VALUES ($1)`, name)
		defer pgtest.Exec(l.T, l.raw, `DELETE FROM raw WHERE name = $1`, name)
	}
	try := func(ctx context.Context, name string) error {
		if _, err := c.TryAcquire(ctx, name); err == nil {
			return errors.New("two holders")
		}
		return nil
	}
	upsert := func(ctx context.Context, name string) error {
		_, err := pool.Exec(ctx, upsertSQL, name)
		return err
	}
	same := func(cycle work) work {
		return func(ctx context.Context, _ string) error { return cycle(ctx, "w0") }
	}
	rates := l.windows(n, same(try), same(upsert), try, upsert)
	fmt.Printf("# %d goroutines: at one name %.0f busy tries/s, upserts %.0f; at names of their own %.0f and %.0f\n",
		n, rates[0], rates[1], rates[2], rates[3])
	l.report("busy-try", rates[0]/rates[1], "×upserts", ">=", bound)
}

// throughput is cycles of distinct names by n goroutines of one process, beside
// as many goroutines that send raw statements: through as many connections as we
// are allowed, and, for information, through as many as a pool would have.
func (l *lab) throughput(n int, bound float64) {
	c, few, many := l.client(l.dsn, nil), l.pool(ourConnections), l.pool(16)
	raw := func(pool *pgxpool.Pool) work {
		return func(ctx context.Context, name string) error { return rawCycle(ctx, pool, name) }
	}
	rates := l.windows(n, func(ctx context.Context, name string) error {
		h, err := c.Acquire(ctx, name)
		if err != nil {
			return err
		}
		return h.Release(ctx)
	}, raw(few), raw(many))
	fmt.Printf("# %d goroutines: %.0f cycles/s; raw statements through %d connections %.0f, through 16 %.0f, that is %.2f times as many\n",
		n, rates[0], ourConnections, rates[1], rates[2], rates[0]/rates[2])
	l.report(fmt.Sprintf("lease-cycles-%d", n), rates[0]/rates[1], "×raw", ">=", bound)
}

// ourConnections is what a client may have while nobody waits.
const ourConnections = 2

func (l *lab) pool(size int) *pgxpool.Pool {
	config, err := pgxpool.ParseConfig(l.dsn)
	pgtest.Must(l.T, err)
	config.MaxConns = int32(size)
	pool, err := pgxpool.NewWithConfig(l.Context(), config)
	pgtest.Must(l.T, err)
	l.Cleanup(pool.Close)
	return pool
}

// work is done again and again by each goroutine, at a name of its own.
type work = func(ctx context.Context, name string) error

// windows alternates windows of each and returns the median rate of each.
func (l *lab) windows(n int, each ...work) []float64 {
	rates := make([][]float64, len(each))
	for i := range 6 {
		for k, w := range each {
			if rate := l.window(n, w); i > 0 { // the first ones prepare statements
				rates[k] = append(rates[k], rate)
			}
		}
	}
	medians := make([]float64, len(each))
	for k, r := range rates {
		medians[k] = median(r)
	}
	return medians
}

// window returns how many cycles a second n goroutines make.
func (l *lab) window(n int, cycle work) float64 {
	var cycles atomic.Int64
	var over atomic.Bool
	var wg sync.WaitGroup
	start := time.Now()
	for i := range n {
		wg.Go(func() {
			for name := fmt.Sprintf("w%d", i); !over.Load(); cycles.Add(1) {
				if err := cycle(l.Context(), name); err != nil {
					l.Error(err)
					return
				}
			}
		})
	}
	time.AfterFunc(350*time.Millisecond, func() { over.Store(true) })
	wg.Wait()
	return float64(cycles.Load()) / time.Since(start).Seconds()
}

// handOver is from the call of a release to the grant in another process that
// waits, beside one commit.
func (l *lab) handOver() {
	a, b := l.client(l.dsn, nil), l.client(l.dsn, nil)
	ctx := l.Context()
	var ours, commits []time.Duration
	for i := range 60 {
		h, err := a.Acquire(ctx, "baton")
		pgtest.Must(l.T, err)
		granted := make(chan time.Time, 1)
		go func() {
			h, err := b.Acquire(ctx, "baton")
			granted <- time.Now()
			if err == nil {
				h.Release(ctx)
			}
		}()
		l.waiters("baton", 1)
		start := time.Now()
		pgtest.Must(l.T, h.Release(ctx))
		took := (<-granted).Sub(start)
		commit := timed(func() { pgtest.Exec(l.T, l.raw, `UPDATE raw SET beat = now() WHERE name = 'busy'`) })
		if i >= 5 {
			ours, commits = append(ours, took), append(commits, commit)
		}
	}
	fmt.Printf("# hand-over %s, one commit %s\n", median(ours), median(commits))
	l.report("hand-over", ratio(median(ours), median(commits)), "×commit", "<=", 3)
}

// waiters waits until so many processes stand in a line.
func (l *lab) waiters(name string, n int) {
	pgtest.WaitFor(l.T, "waiters", func() bool {
		return pgtest.One[int](l.T, l.raw, `SELECT count(*)::int FROM mutex_lock_waiter w
			JOIN mutex_lock t USING (lock_name) WHERE lock_name = $1 AND t.waiting`, name) >= n
	})
}

// herd is many goroutines of several processes that wait for one name: how many
// statements one hand-over costs all of them together.
func (l *lab) herd(processes, each int) {
	ctx, cancel := context.WithCancel(l.Context())
	defer cancel()
	proxy := faultconn.New(l.T, l.server.Addr())
	dsn := proxy.DSN(l.dsn)
	first := l.client(dsn, nil)
	h, err := first.Acquire(ctx, "herd")
	pgtest.Must(l.T, err)
	grants := make(chan *pgmutex.Hold, processes*each)
	var wg sync.WaitGroup
	for range processes {
		c := l.client(dsn, nil)
		for range each {
			wg.Go(func() {
				if h, err := c.Acquire(ctx, "herd"); err == nil {
					grants <- h
				}
			})
		}
	}
	l.waiters("herd", processes)
	connections := proxy.Counts().Connections
	var statements []float64
	for range 100 {
		before := proxy.Counts()
		start := time.Now()
		pgtest.Must(l.T, h.Release(ctx))
		h = <-grants
		_ = start
		after := proxy.Counts().Since(before)
		statements = append(statements, float64(after.RoundTrips()))
	}
	pgtest.Must(l.T, h.Release(context.Background()))
	l.report("herd-statements", median(statements), "a hand-over", "<=", 6)
	l.report("herd-connections", float64(connections)/float64(processes+1), "a process", "<=", 3)
	cancel()
	wg.Wait()
}

// manyHolds is what thousands of holds cost one process.
func (l *lab) manyHolds(n int) {
	goroutines := runtime.NumGoroutine()
	c := l.client(pgtest.With(l.dsn, "application_name", "many"), nil)
	var wg sync.WaitGroup
	names := make(chan string)
	for range 64 {
		wg.Go(func() {
			for name := range names {
				if _, err := c.TryAcquire(l.Context(), name); err != nil {
					l.Error(err)
				}
			}
		})
	}
	for i := range n {
		names <- fmt.Sprintf("many%d", i)
	}
	close(names)
	wg.Wait()
	l.report("many-holds-goroutines", float64(runtime.NumGoroutine()-goroutines), "for 10,000", "<=", 16)
	l.report("many-holds-connections", float64(len(pgtest.Backends(l.T, l.raw, "many"))), "", "<=", 2)
}

// renewal is one interval's renewal of n holds, in no order, beside a plain UPDATE
// of the same rows by their names, and, for information, of all rows.
func (l *lab) renewal(n int) {
	opts := &lease.Options{Table: "renewed"}
	pgtest.Must(l.T, lease.Migrate(l.Context(), l.dsn, opts))
	eng, err := lease.New(l.dsn, opts)
	pgtest.Must(l.T, err)
	pgtest.Must(l.T, eng.Start(l.Context(), nil))
	l.Cleanup(func() { eng.Close(context.Background()) })
	var requests []engine.Request
	for i := range n {
		requests = append(requests, engine.Request{
			Term:      engine.Term{Name: fmt.Sprintf("many%d", i), ID: fmt.Sprintf("host-4711-abcdef~%016d", i), StaleAfter: time.Hour},
			Heartbeat: time.Minute, Details: map[string]string{"host": "host", "pid": "4711"},
		})
	}
	var terms []engine.Term
	for batch := range slices.Chunk(requests, 256) {
		for i, a := range eng.Acquire(l.Context(), batch) {
			if a.Outcome != engine.Granted {
				l.Fatalf("%+v", a)
			}
			batch[i].Term.Token = a.Token
			terms = append(terms, batch[i].Term)
		}
	}
	pgtest.Exec(l.T, l.raw, `ANALYZE renewed`)
	rand.Shuffle(len(terms), func(i, j int) { terms[i], terms[j] = terms[j], terms[i] })
	names := make([]string, len(terms))
	for i, term := range terms {
		names[i] = term.Name
	}
	renew := func() {
		for _, s := range eng.Renew(l.Context(), terms) {
			if s.Health != engine.Held {
				l.Fatalf("%+v", s)
			}
		}
	}
	ours, raw := alternate(20, renew, func() {
		pgtest.Exec(l.T, l.raw, `UPDATE renewed SET last_heartbeat = clock_timestamp() WHERE lock_name = ANY ($1)`, names)
	})
	again, all := alternate(10, renew, func() { pgtest.Exec(l.T, l.raw, `UPDATE renewed SET last_heartbeat = clock_timestamp()`) })
	fmt.Printf("# renewal of %d: %s, plain UPDATE by name %s; beside one of all rows %.2f times as long\n", n, ours, raw, ratio(again, all))
	l.report("renewal-10000", ratio(ours, raw), "×UPDATE", "<=", 2.2)
}

func (l *lab) held() {
	c := l.client(l.dsn, nil)
	h, err := c.Acquire(l.Context(), "held")
	pgtest.Must(l.T, err)
	defer h.Release(l.Context())
	r := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			h.Held()
		}
	})
	l.report("held", float64(r.NsPerOp()), "ns", "<=", 100)
	l.report("held-allocations", float64(r.AllocsPerOp()), "", "<=", 0)
}
