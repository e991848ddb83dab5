package otel

import (
	"context"
	"fmt"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/pgmutex/pgmutex"
)

const scope = "github.com/pgmutex/pgmutex/adapters/otel"

// Options are the options of New. A nil *Options is fine.
type Options struct {
	// TracerProvider makes the spans. Default: the global one, also if it is
	// set later.
	TracerProvider trace.TracerProvider

	// MeterProvider makes the metrics. Default: the global one, also if it is
	// set later.
	MeterProvider metric.MeterProvider
}

// An Instrumentation turns the events of clients into spans and metrics. It may
// serve any number of clients, and its methods may be called concurrently.
type Instrumentation struct {
	tracer trace.Tracer
	meters *meters

	mu     sync.Mutex
	waits  map[waiter]*wait
	holds  map[string]bool  // by term: counted as held
	alerts map[subject]bool // that stand
}

// New returns an instrumentation. It fails where the meter provider refuses an
// instrument.
func New(opts *Options) (*Instrumentation, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
	meters, err := newMeters(o.MeterProvider.Meter(scope))
	if err != nil {
		return nil, fmt.Errorf("pgmutex/otel: MeterProvider: %w", err)
	}
	return &Instrumentation{
		tracer: o.TracerProvider.Tracer(scope),
		meters: meters,
		waits:  map[waiter]*wait{},
		holds:  map[string]bool{},
		alerts: map[subject]bool{},
	}, nil
}

const traceparent = "traceparent"

// Annotate is for pgmutex.Options.Annotate: it puts the span of ctx into the
// details of the hold, as a W3C traceparent, for the links of those who wait. It
// returns nil where there is no span. A program with details of its own merges
// this map into them.
func (i *Instrumentation) Annotate(ctx context.Context) map[string]string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	if carrier[traceparent] == "" {
		return nil
	}
	return map[string]string{traceparent: carrier[traceparent]}
}

// spanOf returns the span that a holder's details show; it is not valid where
// they show none.
func spanOf(details map[string]string) trace.SpanContext {
	carrier := propagation.MapCarrier{traceparent: details[traceparent]}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}

// Hooks returns the hooks to put into pgmutex.Options. They never block longer
// than the providers do.
func (i *Instrumentation) Hooks() pgmutex.Hooks {
	m := i.meters
	return pgmutex.Hooks{
		Acquired:  i.hook(i.acquired),
		Failed:    i.hook(i.failed),
		Contended: i.hook(i.contended),
		Waiting:   i.hook(i.waiting),
		TakenOver: i.hook(func(ctx context.Context, e pgmutex.Event) {
			m.takeovers.Add(ctx, 1, of(e))
		}),
		Heartbeat: i.hook(func(ctx context.Context, e pgmutex.Event) {
			outcome := "ok"
			if e.Err != nil {
				outcome = "failed"
			}
			m.beat.Record(ctx, e.Took.Seconds(), of(e, keyOutcome.String(outcome)))
			m.margin.Record(ctx, max(e.Margin, 0).Seconds(), of(e))
		}),
		Alert:        i.hook(i.alert),
		AlertCleared: i.hook(i.alertCleared),
		Released: i.hook(func(ctx context.Context, e pgmutex.Event) {
			ctx = i.release(ctx, e, "released")
			m.hold.Record(ctx, e.Took.Seconds(), of(e, keyEnd.String("released")))
			i.gone(ctx, e)
		}),
		ReleaseUnconfirmed: i.hook(func(ctx context.Context, e pgmutex.Event) {
			ctx = i.release(ctx, e, "unconfirmed")
			m.unconfirmed.Add(ctx, 1, of(e))
			i.gone(ctx, e) // whatever the store thinks, we do not hold it
		}),
		Lost: i.hook(i.lost),
	}
}

// hook adds what every event may bring.
func (i *Instrumentation) hook(fn func(context.Context, pgmutex.Event)) func(context.Context, pgmutex.Event) {
	return func(ctx context.Context, e pgmutex.Event) {
		if e.Dropped > 0 {
			i.meters.dropped.Add(ctx, int64(e.Dropped), of(e))
		}
		fn(ctx, e)
	}
}
