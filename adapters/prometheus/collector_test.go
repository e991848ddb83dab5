package prometheus_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/pgmutex/pgmutex"
	pgmutexprom "github.com/pgmutex/pgmutex/adapters/prometheus"
	"github.com/pgmutex/pgmutex/memory"
)

// A scene is a collector in a registry of its own.
type scene struct {
	t         *testing.T
	store     *memory.Store
	collector *pgmutexprom.Collector
	registry  *prometheus.Registry
}

func newScene(t *testing.T, opts *pgmutexprom.Options) *scene {
	t.Helper()
	collector, err := pgmutexprom.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	// Pedantic: what is collected must be what was described.
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector)
	return &scene{t: t, store: memory.New(), collector: collector, registry: registry}
}

// open makes a client that the collector watches.
func (s *scene) open(holder string) *pgmutex.Client {
	s.t.Helper()
	locks, err := s.store.Open(s.t.Context(), &pgmutex.Options{
		HolderID: holder, Hooks: []pgmutex.Hooks{s.collector.Hooks()},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = locks.Close(context.Background()) })
	return locks
}

// families gathers.
func (s *scene) families() map[string]*dto.MetricFamily {
	s.t.Helper()
	all, err := s.registry.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	byName := map[string]*dto.MetricFamily{}
	for _, f := range all {
		byName[f.GetName()] = f
	}
	return byName
}

// value returns the sum of the series that have all of the labels, given as
// "name=value": their values or, of histograms, their numbers of observations.
func (s *scene) value(name string, labels ...string) float64 {
	s.t.Helper()
	f := s.families()["pgmutex_"+name]
	if f == nil {
		return 0
	}
	sum := 0.0
	for _, m := range f.Metric {
		has := map[string]bool{}
		for _, l := range m.Label {
			has[l.GetName()+"="+l.GetValue()] = true
		}
		fits := true
		for _, l := range labels {
			fits = fits && has[l]
		}
		if fits {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

func (s *scene) want(want float64, name string, labels ...string) {
	s.t.Helper()
	if got := s.value(name, labels...); got != want {
		s.t.Errorf("%s%q is %v, want %v", name, labels, got, want)
	}
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// everything puts a client through all that there are events about.
func everything(t *testing.T, s *scene) {
	t.Helper()
	ctx := t.Context()
	a, b := s.open("a"), s.open("b")
	hold := must[*pgmutex.Hold](t)

	h := hold(a.Acquire(ctx, "job"))
	synctest.Wait()
	s.want(1, "locks_held")
	s.want(1, "acquisitions_total", "outcome=acquired")
	if _, err := b.TryAcquire(ctx, "job"); !errors.Is(err, pgmutex.ErrHeld) {
		t.Fatalf("got %v", err)
	}
	brief, cancel := context.WithTimeout(ctx, time.Second)
	if _, err := b.Acquire(brief, "job"); err == nil {
		t.Fatal("acquired")
	}
	cancel()
	if _, err := b.With(pgmutex.AcquireOptions{Wait: time.Second}).Acquire(ctx, "job"); err == nil {
		t.Fatal("acquired")
	}
	stopped, cancel := context.WithCancel(ctx)
	time.AfterFunc(time.Second, cancel)
	if _, err := b.Acquire(stopped, "job"); err == nil {
		t.Fatal("acquired")
	}
	time.Sleep(25 * time.Second) // two heartbeats and more
	if err := h.Release(ctx); err != nil {
		t.Fatal(err)
	}

	// A holder that is cut off: its own alert and that of who tries, its loss,
	// and the takeover.
	hold(a.Acquire(ctx, "cut"))
	s.store.SetFaults("a", memory.Faults{Partitioned: true})
	time.Sleep(2 * time.Minute)
	_, _ = b.TryAcquire(ctx, "cut")
	synctest.Wait()
	s.want(1, "alerts_standing", "holder=own")
	s.want(1, "alerts_standing", "holder=other")
	h = hold(b.Acquire(ctx, "cut"))
	synctest.Wait()
	s.want(0, "alerts_standing")
	s.store.SetFaults("", memory.Faults{})
	if err := h.Release(ctx); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Minute)

	// A release that nobody confirms in time.
	h = hold(a.Acquire(ctx, "slow"))
	s.store.SetFaults("a", memory.Faults{Partitioned: true})
	if err := h.Release(ctx); err == nil {
		t.Fatal("confirmed")
	}
	synctest.Wait()
	s.want(0, "locks_held")
	s.store.SetFaults("", memory.Faults{})
	time.Sleep(time.Minute)
	synctest.Wait()
}

func TestEverythingIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil)
		everything(t, s)
		for _, c := range []struct {
			want   float64
			name   string
			labels []string
		}{
			{4, "acquisitions_total", []string{"outcome=acquired", "engine=memory"}},
			{2, "acquisitions_total", []string{"outcome=held"}},
			{2, "acquisitions_total", []string{"outcome=timeout"}},
			{1, "acquisitions_total", []string{"outcome=cancelled"}},
			{4, "acquire_wait_seconds", []string{"outcome=acquired"}},
			{6, "contentions_total", nil},
			{0, "locks_held", nil},
			{3, "hold_seconds", []string{"end=released"}},
			{1, "hold_seconds", []string{"end=lost"}},
			{1, "losses_total", nil},
			{1, "takeovers_total", nil},
			{1, "alerts_total", []string{"holder=own"}},
			{1, "alerts_total", []string{"holder=other"}},
			{0, "alerts_standing", nil},
			{1, "releases_unconfirmed_total", nil},
			{0, "events_dropped_total", nil},
		} {
			s.want(c.want, c.name, c.labels...)
		}
		if got := s.value("heartbeat_seconds", "outcome=ok"); got < 2 {
			t.Errorf("%v heartbeats succeeded", got)
		}
		if got := s.value("heartbeat_seconds", "outcome=failed"); got < 1 {
			t.Errorf("%v heartbeats failed", got)
		}
		if got, all := s.value("heartbeat_margin_seconds"), s.value("heartbeat_seconds"); got != all {
			t.Errorf("%v margins of %v heartbeats", got, all)
		}
	})
}

// TestLint: base units, _total, help texts, whatever the options say.
func TestLint(t *testing.T) {
	for name, opts := range map[string]*pgmutexprom.Options{
		"default": nil,
		"named":   {LockNames: regexp.MustCompile(""), ConstLabels: prometheus.Labels{"service": "billing"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t, opts)
				everything(t, s)
				problems, err := testutil.GatherAndLint(s.registry)
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range problems {
					t.Errorf("%s: %s", p.Metric, p.Text)
				}
				if got := len(s.families()); got != 13 {
					t.Errorf("%d metrics were gathered, want all 13", got)
				}
			})
		})
	}
}

// TestEveryMetricIsDocumented: operators read the list, not the code.
func TestEveryMetricIsDocumented(t *testing.T) {
	c := must[*pgmutexprom.Collector](t)(pgmutexprom.New(nil))
	comment := string(must[[]byte](t)(os.ReadFile("doc.go")))
	descs := make(chan *prometheus.Desc, 100)
	c.Describe(descs)
	close(descs)
	names := regexp.MustCompile(`fqName: "pgmutex_(\w+)"`)
	for d := range descs {
		name := names.FindStringSubmatch(d.String())[1]
		if !strings.Contains(comment, "\n//\t"+name+" ") {
			t.Errorf("the package comment does not list %s", name)
		}
	}
}

func (s *scene) series() int {
	n := 0
	for _, f := range s.families() {
		n += len(f.Metric)
	}
	return n
}

// TestManyNames: a program that locks by order number must not swamp the store
// of metrics.
func TestManyNames(t *testing.T) {
	for _, c := range []struct {
		name   string
		opts   *pgmutexprom.Options
		labels int
	}{
		{"not a label", nil, 0},
		{"all allowed", &pgmutexprom.Options{LockNames: regexp.MustCompile("")}, 201},
		{"some allowed", &pgmutexprom.Options{LockNames: regexp.MustCompile("^order:[1-9]$")}, 10},
		{"a lower cap", &pgmutexprom.Options{LockNames: regexp.MustCompile(""), MaxLocks: 3}, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t, c.opts)
				locks := s.open("a")
				var early int
				for i := range 10000 {
					hold := must[*pgmutex.Hold](t)(locks.Acquire(t.Context(), fmt.Sprintf("order:%d", i)))
					if err := hold.Release(t.Context()); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
					if i == 300 {
						early = s.series()
					}
				}
				if got := s.series(); got != early {
					t.Errorf("%d series after 300 names, %d after 10,000", early, got)
				}
				if limit := 100 * max(c.labels, 1); early > limit {
					t.Errorf("%d series, want at most %d", early, limit)
				}
				s.want(10000, "acquisitions_total", "outcome=acquired")
				seen := map[string]bool{}
				for _, m := range s.families()["pgmutex_acquisitions_total"].Metric {
					for _, l := range m.Label {
						if l.GetName() == "lock" {
							seen[l.GetValue()] = true
						}
					}
				}
				if len(seen) != c.labels || c.labels > 0 && !seen["_other"] {
					t.Errorf("%d values of the label lock, want %d with _other", len(seen), c.labels)
				}
			})
		})
	}
}

func TestOptionsThatAreRefused(t *testing.T) {
	for field, opts := range map[string]*pgmutexprom.Options{
		"MaxLocks":    {MaxLocks: -1, LockNames: regexp.MustCompile("")},
		"MaxLocks:":   {MaxLocks: 5},
		"ConstLabels": {ConstLabels: prometheus.Labels{"engine": "mine"}},
	} {
		if _, err := pgmutexprom.New(opts); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: got %v", field, err)
		}
	}
}

// TestOutcomes feeds the hooks by hand what is rare.
func TestOutcomes(t *testing.T) {
	s := newScene(t, nil)
	hooks := s.collector.Hooks()
	fail := func(err error) {
		hooks.Failed(t.Context(), pgmutex.Event{Info: pgmutex.Info{Name: "x", Engine: "lease"}, Err: err})
	}
	fail(&pgmutex.AcquireError{Err: fmt.Errorf("%w: %w", pgmutex.ErrUnknown, context.Canceled)})
	fail(&pgmutex.AcquireError{Err: pgmutex.ErrClosed})
	fail(&pgmutex.AcquireError{Err: fs.ErrPermission})
	fail(&pgmutex.AcquireError{Err: errors.ErrUnsupported})
	fail(errors.New("connection refused"))
	s.want(1, "acquisitions_total", "outcome=unknown")
	s.want(1, "acquisitions_total", "outcome=closed")
	s.want(2, "acquisitions_total", "outcome=refused")
	s.want(1, "acquisitions_total", "outcome=error")
	s.want(5, "acquire_wait_seconds")

	hooks.Waiting(t.Context(), pgmutex.Event{Info: pgmutex.Info{Engine: "lease"}, Dropped: 7})
	s.want(7, "events_dropped_total", "engine=lease")
	hooks.Lost(t.Context(), pgmutex.Event{Info: pgmutex.Info{Engine: "lease"}, Reason: "the moon is full"})
	s.want(1, "losses_total", "reason=other")
}
