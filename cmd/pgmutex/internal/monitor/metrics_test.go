package monitor

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/memory"
)

// quiet is a monitor that has not begun to look.
func quiet(t *testing.T, change func(*Config)) *Monitor {
	t.Helper()
	client, err := memory.New().Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Client: client, Lock: "pgmutex.monitor", Every: 5 * time.Second, Sinks: []Sink{&Webhook{}}, Log: slog.New(slog.DiscardHandler)}
	change(&cfg)
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func statuses(now time.Time) []pgmutex.Status {
	return []pgmutex.Status{
		{Name: "a", State: pgmutex.StateHeld, Since: now.Add(-time.Minute), HeartbeatAge: 5 * time.Second, Waiters: 2},
		{Name: "b", State: pgmutex.StateLate, Since: now.Add(-time.Hour), HeartbeatAge: 40 * time.Second, Waiters: 1},
		{Name: "c", State: pgmutex.StateHeld, Since: now.Add(-time.Second), HeartbeatAge: time.Second},
	}
}

func TestFleetMetrics(t *testing.T) {
	now := time.Now()
	m := quiet(t, func(*Config) {})
	if n := testutil.CollectAndCount(m.fleet); n != 0 {
		t.Errorf("%d series before the first look", n)
	}
	m.fleet.saw(now, statuses(now))
	if err := testutil.CollectAndCompare(m.fleet, strings.NewReader(`
# HELP pgmutex_fleet_heartbeat_age_seconds Age of the oldest heartbeat, by the clock of the store's server.
# TYPE pgmutex_fleet_heartbeat_age_seconds gauge
pgmutex_fleet_heartbeat_age_seconds 40
# HELP pgmutex_fleet_held_seconds Time since the longest hold began, by the clock of the monitor.
# TYPE pgmutex_fleet_held_seconds gauge
pgmutex_fleet_held_seconds 3600
# HELP pgmutex_fleet_locks_held Locks that are held in the store, by state: held, late, stale.
# TYPE pgmutex_fleet_locks_held gauge
pgmutex_fleet_locks_held{state="held"} 2
pgmutex_fleet_locks_held{state="late"} 1
pgmutex_fleet_locks_held{state="stale"} 0
# HELP pgmutex_fleet_waiters Processes that wait for a lock.
# TYPE pgmutex_fleet_waiters gauge
pgmutex_fleet_waiters 3
`)); err != nil {
		t.Error(err)
	}
	m.fleet.saw(now, nil)
	if n := testutil.CollectAndCount(m.fleet); n != 6 {
		t.Errorf("%d series with nothing held, want 6", n)
	}
}

// TestLabels: names become labels if they are asked for, up to a number.
func TestLabels(t *testing.T) {
	now := time.Now()
	m := quiet(t, func(c *Config) { c.LockNames, c.MaxLocks = regexp.MustCompile("^[ab]$"), 200 })
	m.fleet.saw(now, statuses(now))
	if err := testutil.CollectAndCompare(m.fleet, strings.NewReader(`
# HELP pgmutex_fleet_waiters Processes that wait for a lock.
# TYPE pgmutex_fleet_waiters gauge
pgmutex_fleet_waiters{lock="a"} 2
pgmutex_fleet_waiters{lock="b"} 1
pgmutex_fleet_waiters{lock="_other"} 0
`), "pgmutex_fleet_waiters"); err != nil {
		t.Error(err)
	}

	m = quiet(t, func(c *Config) { c.LockNames, c.MaxLocks = regexp.MustCompile(""), 200 })
	var many []pgmutex.Status
	for i := range 10000 {
		many = append(many, pgmutex.Status{Name: fmt.Sprint("order:", i), State: pgmutex.StateHeld, Since: now})
	}
	m.fleet.saw(now, many)
	if n := testutil.CollectAndCount(m.fleet, "pgmutex_fleet_waiters"); n != 201 {
		t.Errorf("%d series of 10,000 names, want 201", n)
	}
	if n := len(m.fleet.names); n != 200 {
		t.Errorf("%d names are remembered", n)
	}
}

func TestLint(t *testing.T) {
	now := time.Now()
	m := quiet(t, func(c *Config) { c.LockNames, c.MaxLocks = regexp.MustCompile(""), 200 })
	m.fleet.saw(now, statuses(now))
	problems, err := testutil.GatherAndLint(m.Registry())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

var fqName = regexp.MustCompile(`fqName: "(\w+)"`)

// described returns the names of the metrics of a collector that are ours.
func described(c prometheus.Collector) []string {
	descs := make(chan *prometheus.Desc, 1000)
	c.Describe(descs)
	close(descs)
	var names []string
	for d := range descs {
		if name := fqName.FindStringSubmatch(d.String()); name != nil && strings.HasPrefix(name[1], "pgmutex_") {
			names = append(names, name[1])
		}
	}
	return names
}

// TestEveryMetricIsDocumented: operators read the list, not the code.
func TestEveryMetricIsDocumented(t *testing.T) {
	text, err := os.ReadFile(repository + "docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	names := described(quiet(t, func(*Config) {}).Registry())
	if len(names) < 10 {
		t.Fatalf("only %q", names)
	}
	for _, name := range names {
		if !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("docs/operations.md does not explain %s", name)
		}
	}
}

// TestProbes: ready says whether the store can be looked at, healthy whether the
// monitor itself works.
func TestProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := quiet(t, func(*Config) {})
		want := func(path string, code int) {
			t.Helper()
			w := httptest.NewRecorder()
			m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			if w.Code != code {
				t.Errorf("%s: %d %s, want %d", path, w.Code, w.Body, code)
			}
		}
		want("/healthz", 200)
		want("/readyz", 503)
		m.look(t.Context())
		want("/readyz", 200)
		m.watch.failed()
		want("/readyz", 503)
		want("/healthz", 200)
		m.look(t.Context())
		time.Sleep(20 * time.Second)
		want("/readyz", 200)
		time.Sleep(time.Minute)
		want("/readyz", 503)
		want("/healthz", 503)
		want("/metrics", 200)
		want("/", 404)
	})
}

// repository is where the files are that operators use.
const repository = "../../../../"
