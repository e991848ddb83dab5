// Package telemetry sends the spans and metrics of a run to an OpenTelemetry
// collector, as the standard OTEL_ variables say. Nothing of it runs unless it is
// asked for, and nothing that happens to a collector changes a run.
package telemetry

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/trace"

	"github.com/pgmutex/pgmutex"
	pgmutexotel "github.com/pgmutex/pgmutex/adapters/otel"
)

// flushing bounds how long the end of a run waits for the collector.
const flushing = 1500 * time.Millisecond

// parentVariable carries the span of whoever starts a program, in the form of the
// header traceparent.
const parentVariable = "TRACEPARENT"

// Telemetry is that of one run. All methods of a nil one do nothing.
type Telemetry struct {
	inst    *pgmutexotel.Instrumentation
	ctx     context.Context //nolint:containedctx // the span of the run, which everything else is below
	span    trace.Span
	stop    []func(context.Context) error
	refused atomic.Bool // the collector has not taken everything
}

// Start begins the span of a run of the lock. It connects to nothing. An error is
// about a variable and names it.
func Start(ctx context.Context, lock string, getenv func(string) string) (*Telemetry, error) {
	t := &Telemetry{}
	// The SDK tells its mishaps to the process, and otherwise prints them.
	otel.SetLogger(logr.Discard())
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) { t.refused.Store(true) }))
	res, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "pgmutex")), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	opts := &pgmutexotel.Options{}
	if opts.TracerProvider, err = t.tracing(ctx, res, getenv); err != nil {
		return nil, err
	}
	if opts.MeterProvider, err = t.metering(ctx, res, getenv); err != nil {
		return nil, err
	}
	if t.inst, err = pgmutexotel.New(opts); err != nil {
		return nil, err
	}
	parent := propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": getenv(parentVariable)})
	t.ctx, t.span = opts.TracerProvider.Tracer("github.com/pgmutex/pgmutex/cmd/pgmutex").Start(parent, "pgmutex run",
		trace.WithAttributes(attribute.String("pgmutex.lock.key", lock)))
	return t, nil
}

// Instrument adds what the client has to call.
func (t *Telemetry) Instrument(opts *pgmutex.Options) {
	if t == nil {
		return
	}
	opts.Hooks = append(opts.Hooks, t.inst.Hooks())
	opts.Annotate = t.inst.Annotate
}

// Context puts the span of the run into a context.
func (t *Telemetry) Context(ctx context.Context) context.Context {
	if t == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, t.span)
}

// Environ returns the environment of the command: with the span of the run as the
// parent of its own.
func (t *Telemetry) Environ(env []string) []string {
	if t == nil || !t.span.SpanContext().IsValid() {
		return env
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(t.ctx, carrier)
	var own []string
	for _, e := range env {
		if !strings.HasPrefix(e, parentVariable+"=") {
			own = append(own, e)
		}
	}
	return append(own, parentVariable+"="+carrier["traceparent"])
}

// End ends the span of the run and sends what there is left. It returns in any
// case after a moment; false if the collector has not taken everything.
func (t *Telemetry) End(code int) bool {
	if t == nil {
		return true
	}
	t.span.SetAttributes(attribute.Int("process.exit.code", code))
	t.span.End()
	ctx, cancel := context.WithTimeout(context.Background(), flushing)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		var all sync.WaitGroup
		for _, stop := range t.stop {
			all.Go(func() {
				if stop(ctx) != nil {
					t.refused.Store(true)
				}
			})
		}
		all.Wait()
	}()
	// An exporter that does not look at its context must not keep anybody.
	select {
	case <-done:
		return !t.refused.Load()
	case <-ctx.Done():
		return false
	}
}

// FromEnv is Start with the environment of the process.
func FromEnv(ctx context.Context, lock string) (*Telemetry, error) {
	return Start(ctx, lock, os.Getenv)
}
