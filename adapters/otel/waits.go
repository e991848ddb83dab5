package otel

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/pgmutex/pgmutex"
)

// A waiter is as much as events tell about which acquisition they belong to.
type waiter struct {
	client, name string
	trace        trace.TraceID
	span         trace.SpanID
}

// A wait is what is remembered of acquisitions until they end.
type wait struct {
	pending int // acquisitions that found the lock held
	links   []trace.Link
}

const (
	// What remembers waits is bounded, since the event that ends one may be
	// dropped.
	maxWaits = 1000
	// One wait may see many holders come and go.
	maxLinks = 8
)

func waiterOf(ctx context.Context, e pgmutex.Event) waiter {
	sc := trace.SpanContextFromContext(ctx)
	return waiter{client: e.Info.Holder, name: e.Info.Name, trace: sc.TraceID(), span: sc.SpanID()}
}

// saw adds a link to a holder's span, once.
func (w *wait) saw(holder string, details map[string]string) {
	sc := spanOf(details)
	if !sc.IsValid() || len(w.links) >= maxLinks {
		return
	}
	for _, l := range w.links {
		if l.SpanContext.TraceID() == sc.TraceID() && l.SpanContext.SpanID() == sc.SpanID() {
			return
		}
	}
	w.links = append(w.links, trace.Link{SpanContext: sc, Attributes: []attribute.KeyValue{keyHolder.String(holder)}})
}

func (i *Instrumentation) contended(ctx context.Context, e pgmutex.Event) {
	i.meters.contentions.Add(ctx, 1, of(e))
	key := waiterOf(ctx, e)
	i.mu.Lock()
	defer i.mu.Unlock()
	w := i.waits[key]
	if w == nil {
		if len(i.waits) >= maxWaits {
			clear(i.waits)
		}
		w = &wait{}
		i.waits[key] = w
	}
	w.pending++
	w.saw(e.Rival, e.Details)
}

func (i *Instrumentation) waiting(ctx context.Context, e pgmutex.Event) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if w := i.waits[waiterOf(ctx, e)]; w != nil {
		w.saw(e.Rival, e.Details)
	}
}

// end returns a copy of what is remembered of an acquisition that has ended, and
// forgets it with the last one that shares it.
func (i *Instrumentation) end(ctx context.Context, e pgmutex.Event) wait {
	key := waiterOf(ctx, e)
	i.mu.Lock()
	defer i.mu.Unlock()
	w := i.waits[key]
	if w == nil {
		return wait{}
	}
	if w.pending--; w.pending <= 0 {
		delete(i.waits, key)
	}
	copied := *w
	copied.links = append([]trace.Link(nil), w.links...)
	return copied
}
