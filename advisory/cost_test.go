package advisory_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/internal/faultconn"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

func TestRoundTrips(t *testing.T) {
	dsn := pgtest.Shared(t).Database(t)
	proxy := faultconn.New(t, pgtest.Shared(t).Addr())
	// No renewal comes in between.
	c := open(t, proxy.DSN(dsn), "a", pgmutex.Options{StaleAfter: 10 * time.Minute})
	// A new text takes a second round trip once for each session.
	pgtest.Must(t, take(t, c, "warm").Heartbeat(t.Context()))
	pgtest.Must(t, c.Release(t.Context(), "warm"))

	measure := func(what string, want int, do func()) {
		t.Helper()
		before := proxy.Counts()
		do()
		if got := proxy.Counts().Since(before).RoundTrips(); got != want {
			t.Errorf("%s: %d round trips, want %d", what, got, want)
		}
	}
	var h *pgmutex.Hold
	measure("acquire", 1, func() { h = take(t, c, "x") })
	measure("try of a lock that the client itself holds", 0, func() { mustBusy(t, c, "x") })
	var many []*pgmutex.Hold
	for i := range 50 {
		many = append(many, take(t, c, fmt.Sprint("many-", i)))
	}
	measure("heartbeat beside 50 others", 1, func() { pgtest.Must(t, h.Heartbeat(t.Context())) })
	measure("release", 1, func() { pgtest.Must(t, h.Release(t.Context())) })
	for _, h := range many {
		pgtest.Must(t, h.Release(t.Context()))
	}
	if n := proxy.Counts().Connections; n != 1 {
		t.Errorf("%d connections", n)
	}
}

// TestCycle prints what a cycle costs beside two raw statements, by medians of
// alternating single operations. A busy machine scatters it, so it asserts
// nothing.
func TestCycle(t *testing.T) {
	dsn := pgtest.Shared(t).Database(t)
	c := open(t, dsn, "a", pgmutex.Options{})
	raw := pgtest.Conn(t, dsn)
	var cycles, raws []time.Duration
	for range 500 {
		begin := time.Now()
		h := take(t, c, "x")
		pgtest.Must(t, h.Release(t.Context()))
		cycles = append(cycles, time.Since(begin))
		begin = time.Now()
		for range 2 {
			var one int
			pgtest.Must(t, raw.QueryRow(t.Context(), "SELECT 1").Scan(&one))
		}
		raws = append(raws, time.Since(begin))
	}
	slices.Sort(cycles)
	slices.Sort(raws)
	cycle, two := cycles[len(cycles)/2], raws[len(raws)/2]
	t.Logf("cycle %v, two raw statements %v: %.2f", cycle, two, float64(cycle)/float64(two))
}
