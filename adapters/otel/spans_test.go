package otel_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/pgmutex/pgmutex"
	pgmutexotel "github.com/pgmutex/pgmutex/adapters/otel"
	"github.com/pgmutex/pgmutex/memory"
)

// A scene is an instrumentation with an SDK of its own.
type scene struct {
	t      *testing.T
	store  *memory.Store
	inst   *pgmutexotel.Instrumentation
	tracer trace.Tracer
	spans  *tracetest.SpanRecorder
	reader *sdkmetric.ManualReader
}

func newScene(t *testing.T) *scene {
	t.Helper()
	spans, reader := tracetest.NewSpanRecorder(), sdkmetric.NewManualReader()
	tracing := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	inst, err := pgmutexotel.New(&pgmutexotel.Options{
		TracerProvider: tracing,
		MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return &scene{t: t, store: memory.New(), inst: inst, tracer: tracing.Tracer("test"), spans: spans, reader: reader}
}

func (s *scene) open(holder string) *pgmutex.Client {
	s.t.Helper()
	locks, err := s.store.Open(s.t.Context(), &pgmutex.Options{
		HolderID: holder, Hooks: []pgmutex.Hooks{s.inst.Hooks()}, Annotate: s.inst.Annotate,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = locks.Close(context.Background()) })
	return locks
}

// ended returns our spans that have ended, when all events have arrived.
func (s *scene) ended() []sdktrace.ReadOnlySpan {
	synctest.Wait()
	var ours []sdktrace.ReadOnlySpan
	for _, span := range s.spans.Ended() {
		if span.InstrumentationScope().Name != "test" {
			ours = append(ours, span)
		}
	}
	return ours
}

func attributes(list []attribute.KeyValue) map[string]any {
	m := map[string]any{}
	for _, a := range list {
		m[string(a.Key)] = a.Value.AsInterface()
	}
	return m
}

func wantAttributes(t *testing.T, list []attribute.KeyValue, want map[string]any) {
	t.Helper()
	got := attributes(list)
	for k, v := range want {
		if got["pgmutex.lock."+k] != v {
			t.Errorf("attribute %s is %v, want %v", k, got["pgmutex.lock."+k], v)
		}
	}
}

func acquire(t *testing.T, ctx context.Context, locks *pgmutex.Client, name string) *pgmutex.Hold {
	t.Helper()
	h, err := locks.Acquire(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait() // each client tells its events on a goroutine of its own
	return h
}

func release(t *testing.T, h *pgmutex.Hold) {
	t.Helper()
	if err := h.Release(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// TestWaiterLinksToHolder: from a slow span one gets to what it waited for.
func TestWaiterLinksToHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		a, b := s.open("a"), s.open("b")
		holding, work := s.tracer.Start(t.Context(), "nightly")
		waiting, request := s.tracer.Start(t.Context(), "request")

		h := acquire(t, holding, a, "ledger")
		time.AfterFunc(5*time.Minute, func() {
			if err := h.Release(context.Background()); err != nil {
				t.Error(err)
			}
		})
		start := time.Now()
		h2 := acquire(t, waiting, b, "ledger")
		release(t, h2)
		request.End()
		work.End()

		spans := s.ended()
		// At the same moment, and on two goroutines.
		if spans[1].Name() == "pgmutex.lock.acquire" {
			spans[1], spans[2] = spans[2], spans[1]
		}
		names := ""
		for _, span := range spans {
			names += span.Name() + " "
		}
		// Of hundreds of polls and heartbeats there is none.
		if want := "pgmutex.lock.acquire pgmutex.lock.release pgmutex.lock.acquire pgmutex.lock.release "; names != want {
			t.Fatalf("spans are %s, want %s", names, want)
		}
		if spans[0].Parent().SpanID() != work.SpanContext().SpanID() || len(spans[0].Links()) != 0 {
			t.Errorf("the holder's span: parent %v, links %v", spans[0].Parent(), spans[0].Links())
		}
		waited := spans[2]
		if waited.Parent().SpanID() != request.SpanContext().SpanID() {
			t.Errorf("the parent is %v", waited.Parent())
		}
		if !waited.StartTime().Equal(start) || waited.EndTime().Sub(start).Round(time.Second) != 5*time.Minute {
			t.Errorf("from %v to %v, want 5 minutes from %v", waited.StartTime(), waited.EndTime(), start)
		}
		links := waited.Links()
		if len(links) != 1 {
			t.Fatalf("links are %v", links)
		}
		if sc := links[0].SpanContext; sc.TraceID() != work.SpanContext().TraceID() || sc.SpanID() != work.SpanContext().SpanID() {
			t.Errorf("links to %v, want %v", sc, work.SpanContext())
		}
		wantAttributes(t, links[0].Attributes, map[string]any{"holder": "a"})
		wantAttributes(t, waited.Attributes(), map[string]any{
			"key": "ledger", "id": pgmutex.AdvisoryID("ledger"), "engine": "memory", "holder": "b",
			"acquired": true, "outcome": "acquired", "timeout": -1.0, "token": h2.Token(), "wait_time": waited.EndTime().Sub(start).Seconds(),
		})
		if waited.Status().Code != codes.Unset {
			t.Errorf("status is %v", waited.Status())
		}
		wantAttributes(t, spans[1].Attributes(), map[string]any{
			"key": "ledger", "id": pgmutex.AdvisoryID("ledger"), "outcome": "released", "token": h.Token(), "hold_time": 300.0,
		})

		// The next one does not inherit the link.
		release(t, acquire(t, waiting, b, "ledger"))
		if last := s.ended()[4]; len(last.Links()) != 0 {
			t.Errorf("links are %v", last.Links())
		}
	})
}

// TestFailures: what an operator should look into is an error, and nothing else.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		a, b := s.open("a"), s.open("b")
		ctx, span := s.tracer.Start(t.Context(), "work")
		defer span.End()
		h := acquire(t, ctx, a, "x")
		defer release(t, h)

		failed := func(name, outcome string, status codes.Code, links int, err error) {
			t.Helper()
			if err == nil {
				t.Fatal("acquired")
			}
			all := s.ended()
			span := all[len(all)-1]
			if span.Name() != "pgmutex.lock."+name || span.Status().Code != status || len(span.Links()) != links {
				t.Errorf("%s: %s, %v, links %v", outcome, span.Name(), span.Status(), span.Links())
			}
			wantAttributes(t, span.Attributes(), map[string]any{"outcome": outcome, "acquired": false})
		}

		_, err := b.TryAcquire(t.Context(), "x")
		failed("try", "held", codes.Unset, 1, err)
		all := s.ended()
		wantAttributes(t, all[len(all)-1].Attributes(), map[string]any{"timeout": nil})

		cancelled, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		_, err = b.Acquire(cancelled, "x")
		failed("acquire", "cancelled", codes.Unset, 1, err)
		all = s.ended()
		wantAttributes(t, all[len(all)-1].Attributes(), map[string]any{"wait_time": 60.0, "timeout": -1.0})

		_, err = b.With(pgmutex.AcquireOptions{Wait: 2 * time.Second}).Acquire(t.Context(), "x")
		failed("acquire", "timeout", codes.Error, 1, err)
		all = s.ended()
		wantAttributes(t, all[len(all)-1].Attributes(), map[string]any{"timeout": 2.0})

		late, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = b.Acquire(late, "x")
		failed("acquire", "timeout", codes.Error, 1, err)

		s.store.SetFaults("b", memory.Faults{Fail: fs.ErrPermission})
		_, err = b.TryAcquire(t.Context(), "y")
		failed("try", "refused", codes.Error, 0, err)
		s.store.SetFaults("b", memory.Faults{Fail: errors.New("no route to host")})
		_, err = b.TryAcquire(t.Context(), "y")
		failed("try", "error", codes.Error, 0, err)
		s.store.SetFaults("b", memory.Faults{DropReplies: true})
		_, err = b.TryAcquire(t.Context(), "y")
		failed("try", "unknown", codes.Error, 0, err)
		s.store.SetFaults("b", memory.Faults{})

		// A try that succeeds is one as well, and a limit is told of a wait that
		// ends before it.
		free, err := b.TryAcquire(t.Context(), "z")
		if err != nil {
			t.Fatal(err)
		}
		release(t, free)
		all = s.ended()
		if name := all[len(all)-2].Name(); name != "pgmutex.lock.try" {
			t.Errorf("a try is %s", name)
		}
		release(t, acquire(t, t.Context(), b.With(pgmutex.AcquireOptions{Wait: 3 * time.Second}), "z"))
		all = s.ended()
		wantAttributes(t, all[len(all)-2].Attributes(), map[string]any{"timeout": 3.0, "outcome": "acquired"})
	})
}

// TestLossAndTakeover: the loss is told where the work is, the takeover where it
// was made.
func TestLossAndTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		a, b := s.open("a"), s.open("b")
		ctx, work := s.tracer.Start(t.Context(), "work")
		h := acquire(t, ctx, a, "x")
		s.store.SetFaults("a", memory.Faults{Partitioned: true})
		release(t, acquire(t, t.Context(), b, "x"))
		s.store.SetFaults("", memory.Faults{})
		if err := h.Release(t.Context()); !errors.Is(err, pgmutex.ErrLost) {
			t.Fatalf("got %v", err)
		}
		spans := s.ended()
		work.End()

		ended := s.spans.Ended()
		events := ended[len(ended)-1].Events()
		if len(events) != 1 || events[0].Name != "pgmutex.lock.lost" {
			t.Fatalf("events are %v", events)
		}
		wantAttributes(t, events[0].Attributes, map[string]any{"key": "x", "token": h.Token()})
		took := spans[1]
		wantAttributes(t, took.Attributes(), map[string]any{"taken_over": "a", "acquired": true})
		if len(took.Links()) != 1 || took.Links()[0].SpanContext.SpanID() != work.SpanContext().SpanID() {
			t.Errorf("links are %v", took.Links())
		}
	})
}

func TestAnnotate(t *testing.T) {
	s := newScene(t)
	if got := s.inst.Annotate(t.Context()); got != nil {
		t.Errorf("without a span: %v", got)
	}
	ctx, span := s.tracer.Start(t.Context(), "work")
	sc := span.SpanContext()
	want := fmt.Sprintf("00-%s-%s-01", sc.TraceID(), sc.SpanID())
	if got := s.inst.Annotate(ctx); len(got) != 1 || got["traceparent"] != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

// TestForgedTraceparent: details are written by others.
func TestForgedTraceparent(t *testing.T) {
	s := newScene(t)
	hooks := s.inst.Hooks()
	for _, tp := range []string{"", "nonsense", "00-00000000000000000000000000000000-0000000000000000-01", "\x00"} {
		info := pgmutex.Info{Name: "x", Engine: "lease"}
		hooks.Contended(t.Context(), pgmutex.Event{Info: info, Rival: "r", Details: map[string]string{"traceparent": tp}})
		hooks.Acquired(t.Context(), pgmutex.Event{Info: info, Start: time.Now()})
	}
	for _, span := range s.spans.Ended() {
		if len(span.Links()) != 0 {
			t.Errorf("links are %v", span.Links())
		}
	}
}
