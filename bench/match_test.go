//go:build bench

package bench

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// update is for make bench-peers: without it a run only prints.
var update = flag.Bool("update", false, "write RESULTS.md and the plots")

// A match is one run in which all contestants meet.
type match struct {
	*testing.T
	*servers
	scale
	results map[string][]line // by row
}

// A line is what one contestant did in a row; NaN is what it has not.
type line struct {
	name   string
	values []float64
}

// A scale is how long a run measures.
type scale struct {
	rounds    int // of single operations
	windows   int // for each number of goroutines, the first of which warms up
	window    time.Duration
	handovers int           // of contestants whose waiters are woken
	each      int           // waiters in each of the 10 processes
	spread    time.Duration // in which they begin to wait
	watch     time.Duration
	drain     time.Duration // at most, for all waiters to have had their turn
	holds     int
	intervals int // of renewals that are counted
	renewals  int
	benchtime time.Duration // of Held
}

var (
	full  = scale{400, 5, 400 * time.Millisecond, 150, 100, time.Second, 3 * time.Second, 15 * time.Second, 10_000, 2, 5, time.Second}
	short = scale{40, 2, 150 * time.Millisecond, 10, 20, 300 * time.Millisecond, 500 * time.Millisecond, time.Second, 1000, 1, 1, 50 * time.Millisecond}
)

var nan = math.NaN()

// TestPeers measures every row and writes RESULTS.md and the plots.
func TestPeers(t *testing.T) {
	m := &match{T: t, scale: full, results: map[string][]line{}}
	if testing.Short() {
		m.scale = short
	}
	begin, before := time.Now(), load()
	m.servers = newServers(t)
	for _, measure := range []struct {
		row string
		do  func()
	}{
		{"cycle-1", m.single},
		{"cycle-16", func() { m.concurrent(16) }},
		{"cycle-64", func() { m.concurrent(64) }},
		{"cycle-256", func() { m.concurrent(256) }},
		{"advisory", m.advisory},
		{"handover", m.handOver},
		{"waiters", m.waiters},
		{"busy", m.busy},
		{"holds", m.manyHolds},
		{"renewal", m.renewal},
		{"held", m.held},
	} {
		t.Run(measure.row, func(t *testing.T) {
			m.T = t
			start := time.Now()
			measure.do()
			fmt.Fprintf(os.Stdout, "\n%s\n# %s\n", m.text(measure.row), time.Since(start).Round(time.Second))
		})
	}
	m.T = t
	for _, s := range m.settings {
		fmt.Fprintln(os.Stdout, "#", s)
	}
	if *update && !t.Failed() && len(m.results) == len(rows) {
		m.write(begin, before)
	}
}

func (m *match) add(row, name string, values ...float64) {
	m.results[row] = append(m.results[row], line{name, values})
}

// entered are the contestants of a row.
func entered(row string) []contestant {
	return slices.DeleteFunc(contestants(), func(c contestant) bool { return !slices.Contains(c.in, row) })
}

// opened opens a party of each contestant, until the row is measured.
func (m *match) opened(all []contestant) (parties []party, end func()) {
	m.Helper()
	for _, c := range all {
		p, err := c.open(m.Context(), m.at, 0)
		if err != nil {
			m.Fatalf("%s: %v", c.name, err)
		}
		parties = append(parties, p)
	}
	return parties, func() {
		for _, p := range parties {
			if p.close != nil {
				p.close()
			}
		}
	}
}

// must names the contestant that failed.
func (m *match) must(c contestant, err error) {
	m.Helper()
	if err != nil {
		m.Fatalf("%s: %v", c.name, err)
	}
}

// inTurn runs one of each operation in every round, each round beginning with
// another, and returns the times of each in ascending order.
func inTurn(rounds int, operations []func()) [][]time.Duration {
	const warm = 3 // statements are prepared, connections made
	took := make([][]time.Duration, len(operations))
	for round := range rounds + warm {
		for i := range operations {
			at := (i + round) % len(operations)
			d := timed(operations[at])
			if round >= warm {
				took[at] = append(took[at], d)
			}
		}
	}
	for i := range took {
		slices.Sort(took[i])
	}
	return took
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (m *match) single() {
	all := entered("cycle-1")
	parties, end := m.opened(all)
	defer end()
	operations := make([]func(), len(all))
	base := slices.IndexFunc(all, func(c contestant) bool { return c.name == rawName })
	for i, p := range parties {
		operations[i] = func() { m.must(all[i], cycle(m.Context(), p, "single")) }
	}
	took := inTurn(m.rounds, operations)
	for i, c := range all {
		p50 := quantile(took[i], 0.5)
		m.add("cycle-1", c.name, ms(p50), ms(quantile(took[i], 0.95)), ratio(p50, quantile(took[base], 0.5)))
	}
}

func cycle(ctx context.Context, p party, name string) error {
	h, err := p.lock(ctx, name)
	if err != nil {
		return err
	}
	return h.unlock(ctx)
}

// concurrent is throughput: a window of each contestant in turn.
func (m *match) concurrent(n int) {
	row := fmt.Sprint("cycle-", n)
	all := entered(row)
	parties, end := m.opened(all)
	defer end()
	rates := make([][]float64, len(all))
	for window := range m.windows {
		for i := range all {
			at := (i + window) % len(all)
			rate, err := m.rate(n, parties[at])
			m.must(all[at], err)
			if window > 0 {
				rates[at] = append(rates[at], rate)
			}
		}
	}
	medians := make([]float64, len(all))
	limit := 0.0
	for i, c := range all {
		if medians[i] = median(rates[i]); strings.HasPrefix(c.name, rawName) {
			limit = max(limit, medians[i]) // the better of its two pools
		}
	}
	for i, c := range all {
		m.add(row, c.name, medians[i], medians[i]/limit)
	}
}

// rate is how many cycles a second n goroutines make in one window.
func (m *match) rate(n int, p party) (float64, error) {
	var cycles atomic.Int64
	var over atomic.Bool
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	start := time.Now()
	for i := range n {
		wg.Go(func() {
			for name := fmt.Sprint("window", i); !over.Load(); cycles.Add(1) {
				if err := cycle(m.Context(), p, name); err != nil {
					failed.Store(&err)
					return
				}
			}
		})
	}
	time.AfterFunc(m.window, func() { over.Store(true) })
	wg.Wait()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return float64(cycles.Load()) / time.Since(start).Seconds(), nil
}

// advisory measures those whose lock is a session advisory lock once more, beside
// the least that two round trips can be.
func (m *match) advisory() {
	all := entered("advisory")
	parties, end := m.opened(all)
	defer end()
	operations := []func(){func() {
		pgtest.Exec(m.T, m.conn, "SELECT 1")
		pgtest.Exec(m.T, m.conn, "SELECT 1")
	}}
	for i, p := range parties {
		operations = append(operations, func() { m.must(all[i], cycle(m.Context(), p, "advisory")) })
	}
	took := inTurn(m.rounds*2, operations)
	base := quantile(took[0], 0.5)
	m.add("advisory", "raw SELECT 1, twice", ms(base), 1)
	for i, c := range all {
		p50 := quantile(took[i+1], 0.5)
		m.add("advisory", c.name, ms(p50), ratio(p50, base))
	}
}

// busy is a try of a lock that another client holds.
func (m *match) busy() {
	all := entered("busy")
	holders, end := m.opened(all)
	defer end()
	parties, end := m.opened(all)
	defer end()
	operations := make([]func(), len(all))
	base := 0
	for i, p := range parties {
		h, err := holders[i].lock(m.Context(), all[i].key("busy"))
		m.must(all[i], err)
		defer h.unlock(context.Background())
		operations[i] = func() {
			if _, err := p.try(m.Context(), all[i].key("busy")); err == nil {
				m.Fatalf("%s: two holders", all[i].name)
			} else if !isBusy(err) {
				m.Fatalf("%s: %v", all[i].name, err)
			}
		}
		if all[i].name == rawName {
			base = i
		}
	}
	took := inTurn(m.rounds, operations)
	for i, c := range all {
		p50 := quantile(took[i], 0.5)
		m.add("busy", c.name, ms(p50), ratio(p50, quantile(took[base], 0.5)), m.logOf(c.store, operations[i]))
	}
}

// logOf is how many bytes of log one operation costs. Other work of the server
// writes, too: the least of some windows counts.
func (m *match) logOf(at store, operation func()) float64 {
	const each = 50
	if _, ok := m.logged(m.T, at); !ok {
		return nan
	}
	least := int64(math.MaxInt64)
	for range 5 {
		before, _ := m.logged(m.T, at)
		for range each {
			operation()
		}
		after, _ := m.logged(m.T, at)
		least = min(least, after-before)
	}
	return float64(least) / each
}
