package otel

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/pgmutex/pgmutex"
)

const (
	keyName      = attribute.Key("pgmutex.lock.key")
	keyID        = attribute.Key("pgmutex.lock.id")
	keyEngine    = attribute.Key("pgmutex.lock.engine")
	keyHolder    = attribute.Key("pgmutex.lock.holder")
	keyAcquired  = attribute.Key("pgmutex.lock.acquired")
	keyOutcome   = attribute.Key("pgmutex.lock.outcome")
	keyTimeout   = attribute.Key("pgmutex.lock.timeout")
	keyWaitTime  = attribute.Key("pgmutex.lock.wait_time")
	keyToken     = attribute.Key("pgmutex.lock.token")
	keyShared    = attribute.Key("pgmutex.lock.shared")
	keyTakenOver = attribute.Key("pgmutex.lock.taken_over")
	keyHoldTime  = attribute.Key("pgmutex.lock.hold_time")
	keyReason    = attribute.Key("pgmutex.lock.reason")
	keyEnd       = attribute.Key("pgmutex.lock.end")
	keySubject   = attribute.Key("pgmutex.lock.subject")
)

// question returns the name of the span of an acquisition, and the limit on its
// waiting as the reference tells it: -1 for none. What does not wait has none.
func question(e pgmutex.Event) (name string, limit []attribute.KeyValue) {
	switch {
	case e.Try:
		return "pgmutex.lock.try", nil
	case e.Limit == 0:
		return "pgmutex.lock.acquire", []attribute.KeyValue{keyTimeout.Float64(-1)}
	}
	return "pgmutex.lock.acquire", []attribute.KeyValue{keyTimeout.Float64(e.Limit.Seconds())}
}

// describe returns the attributes that every span has.
func describe(e pgmutex.Event) []attribute.KeyValue {
	attrs := []attribute.KeyValue{
		keyName.String(e.Info.Name), keyID.Int64(e.Info.ID),
		keyEngine.String(e.Info.Engine), keyHolder.String(e.Info.Holder),
	}
	if e.Info.Token != 0 {
		attrs = append(attrs, keyToken.Int64(e.Info.Token))
	}
	if e.Info.Shared {
		attrs = append(attrs, keyShared.Bool(true))
	}
	return attrs
}

func (i *Instrumentation) acquired(ctx context.Context, e pgmutex.Event) {
	w := i.end(ctx, e)
	attrs := append(describe(e), keyAcquired.Bool(true), keyOutcome.String("acquired"), keyWaitTime.Float64(e.Took.Seconds()))
	if e.Rival != "" {
		attrs = append(attrs, keyTakenOver.String(e.Rival))
		w.saw(e.Rival, e.Details)
	}
	name, limit := question(e)
	attrs = append(attrs, limit...)
	ctx, span := i.tracer.Start(ctx, name,
		trace.WithTimestamp(e.Start), trace.WithAttributes(attrs...), trace.WithLinks(w.links...))
	span.End(trace.WithTimestamp(e.Start.Add(e.Took)))

	i.meters.acquisitions.Add(ctx, 1, of(e, keyOutcome.String("acquired")))
	i.meters.wait.Record(ctx, e.Took.Seconds(), of(e, keyOutcome.String("acquired")))
	i.took(ctx, e)
}

func (i *Instrumentation) failed(ctx context.Context, e pgmutex.Event) {
	w := i.end(ctx, e)
	end := e.Start.Add(e.Took)
	outcome, isError := judge(e.Err)
	name, limit := question(e)
	attrs := append(describe(e), keyAcquired.Bool(false), keyOutcome.String(outcome), keyWaitTime.Float64(e.Took.Seconds()))
	attrs = append(attrs, limit...)
	var he *pgmutex.HeldError
	if errors.As(e.Err, &he) {
		w.saw(he.Holder, he.Details)
	}
	ctx, span := i.tracer.Start(ctx, name,
		trace.WithTimestamp(e.Start), trace.WithAttributes(attrs...), trace.WithLinks(w.links...))
	if isError {
		span.RecordError(e.Err, trace.WithTimestamp(end))
		span.SetStatus(codes.Error, outcome)
	}
	span.End(trace.WithTimestamp(end))

	i.meters.acquisitions.Add(ctx, 1, of(e, keyOutcome.String(outcome)))
	i.meters.wait.Record(ctx, e.Took.Seconds(), of(e, keyOutcome.String(outcome)))
}

// judge names what became of a failed acquisition, and tells whether that is
// an error. The first of the cases that fits is the one to act upon.
func judge(err error) (outcome string, isError bool) {
	var ae *pgmutex.AcquireError
	switch {
	case errors.Is(err, pgmutex.ErrClosed):
		return "closed", false
	case errors.Is(err, pgmutex.ErrUnknown):
		return "unknown", !errors.Is(err, context.Canceled)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, errors.ErrUnsupported):
		return "refused", true
	case errors.As(err, &ae) && ae.Timeout > 0, errors.Is(err, context.DeadlineExceeded):
		return "timeout", true
	case errors.Is(err, context.Canceled):
		return "cancelled", false
	case errors.Is(err, pgmutex.ErrHeld):
		return "held", false
	}
	return "error", true
}

// release makes the span of a release and returns its context. When the release
// was asked for is not among the facts, so it begins where it ends.
func (i *Instrumentation) release(ctx context.Context, e pgmutex.Event, outcome string) context.Context {
	attrs := append(describe(e), keyOutcome.String(outcome))
	if e.Took > 0 {
		attrs = append(attrs, keyHoldTime.Float64(e.Took.Seconds()))
	}
	now := time.Now()
	ctx, span := i.tracer.Start(ctx, "pgmutex.lock.release", trace.WithTimestamp(now), trace.WithAttributes(attrs...))
	if e.Err != nil {
		span.RecordError(e.Err, trace.WithTimestamp(now))
		span.SetStatus(codes.Error, outcome)
	}
	span.End(trace.WithTimestamp(now))
	return ctx
}

func (i *Instrumentation) lost(ctx context.Context, e pgmutex.Event) {
	attrs := append(describe(e), keyReason.String(string(e.Reason)), keyHoldTime.Float64(e.Took.Seconds()))
	// Without effect on a span that has ended.
	trace.SpanFromContext(ctx).AddEvent("pgmutex.lock.lost", trace.WithAttributes(attrs...))
	i.meters.losses.Add(ctx, 1, of(e, keyReason.String(string(e.Reason))))
	i.meters.hold.Record(ctx, e.Took.Seconds(), of(e, keyEnd.String("lost")))
	i.gone(ctx, e)
}
