package otel_test

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/pgmutex/pgmutex"
	pgmutexotel "github.com/pgmutex/pgmutex/adapters/otel"
	"github.com/pgmutex/pgmutex/memory"
)

// collect returns the sum of each instrument by its name, and by name and
// outcome, end, reason or subject: values or numbers of observations.
func (s *scene) collect() map[string]float64 {
	s.t.Helper()
	var all metricdata.ResourceMetrics
	if err := s.reader.Collect(context.Background(), &all); err != nil {
		s.t.Fatal(err)
	}
	sums := map[string]float64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			add := func(attrs map[string]any, v float64) {
				sums[m.Name] += v
				for k, value := range attrs {
					if k == "pgmutex.lock.key" {
						s.t.Errorf("%s has the name of a lock", m.Name)
					}
					sums[m.Name+" "+value.(string)] += v
				}
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					add(attributes(p.Attributes.ToSlice()), float64(p.Value))
				}
			case metricdata.Histogram[float64]:
				if m.Unit != "s" {
					s.t.Errorf("the unit of %s is %q", m.Name, m.Unit)
				}
				for _, p := range data.DataPoints {
					add(attributes(p.Attributes.ToSlice()), float64(p.Count))
				}
			}
		}
	}
	return sums
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		a, b := s.open("a"), s.open("b")
		h := acquire(t, t.Context(), a, "job")
		synctest.Wait()
		if got := s.collect()["pgmutex.lock.held"]; got != 1 {
			t.Errorf("%v locks held", got)
		}
		if _, err := b.TryAcquire(t.Context(), "job"); err == nil {
			t.Fatal("acquired")
		}
		time.Sleep(25 * time.Second)
		s.store.SetFaults("a", memory.Faults{Partitioned: true})
		time.Sleep(2 * time.Minute)
		if _, err := b.TryAcquire(t.Context(), "job"); err == nil {
			t.Fatal("acquired")
		}
		synctest.Wait()
		if got := s.collect(); got["pgmutex.lock.alerts.standing own"] != 1 || got["pgmutex.lock.alerts.standing other"] != 1 {
			t.Errorf("alerts standing: %v", got)
		}
		h2 := acquire(t, t.Context(), b, "job")
		s.store.SetFaults("", memory.Faults{})
		time.Sleep(time.Minute)
		release(t, h2)
		_ = h.Release(t.Context())

		h = acquire(t, t.Context(), a, "slow")
		s.store.SetFaults("a", memory.Faults{Partitioned: true})
		if err := h.Release(t.Context()); err == nil {
			t.Fatal("confirmed")
		}
		s.store.SetFaults("", memory.Faults{})
		time.Sleep(time.Minute)
		synctest.Wait()
		s.inst.Hooks().Waiting(t.Context(), pgmutex.Event{Info: pgmutex.Info{Engine: "memory"}, Dropped: 7})

		got := s.collect()
		for name, want := range map[string]float64{
			"pgmutex.lock.acquisitions acquired":     3,
			"pgmutex.lock.acquisitions held":         2,
			"pgmutex.lock.acquisitions memory":       5,
			"pgmutex.lock.acquire.duration acquired": 3,
			"pgmutex.lock.contentions":               3,
			"pgmutex.lock.held":                      0,
			"pgmutex.lock.hold.duration released":    2,
			"pgmutex.lock.hold.duration lost":        1,
			"pgmutex.lock.losses":                    1,
			"pgmutex.lock.takeovers":                 1,
			"pgmutex.lock.alerts own":                1,
			"pgmutex.lock.alerts other":              1,
			"pgmutex.lock.alerts.standing":           0,
			"pgmutex.lock.releases.unconfirmed":      1,
			"pgmutex.events.dropped":                 7,
		} {
			if got[name] != want {
				t.Errorf("%s is %v, want %v", name, got[name], want)
			}
		}
		for _, name := range []string{"pgmutex.lock.heartbeat.duration ok", "pgmutex.lock.heartbeat.duration failed", "pgmutex.lock.heartbeat.margin"} {
			if got[name] < 1 {
				t.Errorf("%s is %v", name, got[name])
			}
		}

		text, err := os.ReadFile("doc.go")
		if err != nil {
			t.Fatal(err)
		}
		for name := range got {
			if name, _, _ := strings.Cut(name, " "); !strings.Contains(string(text)+" ", "\n//\t"+name) {
				t.Errorf("the package comment does not list %s", name)
			}
		}
	})
}

// global makes an instrumentation first and sets the global providers then; that
// works once in a process.
var global = sync.OnceValue(func() *scene {
	spans, reader := tracetest.NewSpanRecorder(), sdkmetric.NewManualReader()
	inst, err := pgmutexotel.New(nil)
	if err != nil {
		panic(err)
	}
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))
	otel.SetMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))
	return &scene{inst: inst, spans: spans, reader: reader}
})

// TestGlobalProvider: nil means the global one, also when it is set after New.
func TestGlobalProvider(t *testing.T) {
	s := *global()
	s.t = t
	before := len(s.spans.Ended())
	hold := pgmutex.Info{Name: "x", Engine: "lease", Term: "t"}
	s.inst.Hooks().Acquired(t.Context(), pgmutex.Event{Info: hold, Start: time.Now()})
	if got := s.collect()["pgmutex.lock.held"]; got != 1 {
		t.Errorf("%v locks held", got)
	}
	s.inst.Hooks().Released(t.Context(), pgmutex.Event{Info: hold})
	if got := len(s.spans.Ended()) - before; got != 2 {
		t.Errorf("%d spans", got)
	}
}
