package pgmutex

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/pgmutex/pgmutex/internal/keeper"
)

// A dispatcher carries events to hooks and log on one goroutine of its own, so
// that neither is on the path of a lock.
type dispatcher struct {
	core  *core
	hooks []Hooks
	log   *slog.Logger
	beats bool // somebody wants to know of heartbeats

	// Owned by run.
	failing bool // heartbeats have been failing since the last one that did not

	mu      sync.Mutex
	queue   []notice
	dropped int
	running bool
	closed  bool
	wake    chan struct{} // capacity 1
	done    chan struct{} // closed when run has returned
}

// A notice is a queued event.
type notice struct {
	keeper.Event
	info    *Info // of an acquisition that failed
	dropped int
}

const (
	maxQueue = 4096
	// Heartbeats of thousands of holds come in bursts; they may fill only half
	// of the queue, so that they never push out a loss.
	maxQueuedBeats = maxQueue / 2

	// hooksGrace is how long Close waits for hooks that are still busy.
	hooksGrace = time.Second
)

func newDispatcher(c *core) *dispatcher {
	d := &dispatcher{
		core:  c,
		hooks: slices.Clone(c.opts.Hooks),
		log:   c.opts.Logger,
		wake:  make(chan struct{}, 1),
		done:  make(chan struct{}),
	}
	d.beats = d.log != nil
	for _, h := range d.hooks {
		d.beats = d.beats || h.Heartbeat != nil
	}
	return d
}

// observe queues an event of the keeper's.
func (d *dispatcher) observe(e keeper.Event) { d.enqueue(notice{Event: e}) }

// failed queues the failure of an acquisition.
func (d *dispatcher) failed(e keeper.Event, info Info) { d.enqueue(notice{Event: e, info: &info}) }

func (d *dispatcher) enqueue(n notice) {
	if len(d.hooks) == 0 && d.log == nil {
		return
	}
	limit := maxQueue
	if n.Kind == keeper.Heartbeat {
		if !d.beats {
			return
		}
		limit = maxQueuedBeats
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return
	case len(d.queue) >= limit:
		d.dropped++
		return
	}
	n.dropped, d.dropped = d.dropped, 0
	d.queue = append(d.queue, n)
	if !d.running {
		d.running = true
		go d.run()
	}
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// stop lets the hooks be told of what has been queued, and joins the goroutine.
// It does not wait for a hook that does not return, nor, being called from a
// hook, for itself.
func (d *dispatcher) stop(ctx context.Context) {
	d.mu.Lock()
	d.closed = true
	running := d.running
	d.mu.Unlock()
	close(d.wake)
	if !running || ctx.Value(hookKey{}) == d {
		return
	}
	timer := time.NewTimer(hooksGrace)
	defer timer.Stop()
	select {
	case <-d.done:
	case <-timer.C:
	}
}

// hookKey marks the contexts that hooks are given.
type hookKey struct{}

func (d *dispatcher) run() {
	defer close(d.done)
	for {
		_, open := <-d.wake
		d.mu.Lock()
		queue := d.queue
		d.queue = nil
		d.mu.Unlock()
		for _, n := range queue {
			d.deliver(n)
		}
		if !open {
			return
		}
	}
}

// deliver tells log and hooks of one event.
func (d *dispatcher) deliver(n notice) {
	ctx := context.WithValue(n.Ctx, hookKey{}, d)
	e := d.event(n)
	if d.log != nil {
		d.call(ctx, e, func(ctx context.Context, e Event) { d.record(ctx, n.Kind, e) })
	}
	for _, h := range d.hooks {
		if fn := h.function(n.Kind); fn != nil {
			d.call(ctx, e, fn)
		}
	}
}

// call keeps a panic in a hook from ending the process.
func (d *dispatcher) call(ctx context.Context, e Event, fn func(context.Context, Event)) {
	defer func() {
		if p := recover(); p != nil && d.log != nil {
			// The logger itself may be what panicked.
			defer func() { _ = recover() }()
			d.log.LogAttrs(ctx, slog.LevelWarn, "hook panicked", slog.Any("panic", p))
		}
	}()
	fn(ctx, e)
}

func (h *Hooks) function(k keeper.Kind) func(context.Context, Event) {
	switch k {
	case keeper.Acquired:
		return h.Acquired
	case keeper.TakenOver:
		return h.TakenOver
	case keeper.Contended:
		return h.Contended
	case keeper.Waiting:
		return h.Waiting
	case keeper.Failed:
		return h.Failed
	case keeper.Heartbeat:
		return h.Heartbeat
	case keeper.Alert:
		return h.Alert
	case keeper.AlertCleared:
		return h.AlertCleared
	case keeper.Released:
		return h.Released
	case keeper.ReleaseUnconfirmed:
		return h.ReleaseUnconfirmed
	case keeper.Lost:
		return h.Lost
	}
	return nil
}

// event makes the public form of a notice.
func (d *dispatcher) event(n notice) Event {
	e := Event{
		Start: n.At, Age: n.Age, Took: n.Took, Margin: n.Margin,
		Place: n.Place, Err: n.Err, Dropped: n.dropped, Try: n.Try, Limit: n.Limit,
	}
	switch {
	case n.info != nil:
		e.Info = *n.info
	case n.Lease != nil:
		e.Info = n.Lease.Owner().(*Hold).info
	default:
		name, _ := d.core.ownName(n.Term.Name)
		e.Info = d.core.partialInfo(name, n.Term.Shared)
	}
	if n.Rival != nil {
		e.Rival, e.Details, e.Since = n.Rival.Holder, n.Rival.Details, n.Rival.Since
	}
	if n.Ending != nil {
		lost := n.Lease.Owner().(*Hold).lostError(n.Ending)
		e.Reason, e.Rival, e.Err = lost.Reason(), lost.By(), lost
	}
	return e
}

// record writes the log. Messages are constant; the keys are the same in all of
// them.
func (d *dispatcher) record(ctx context.Context, k keeper.Kind, e Event) {
	level, msg := slog.LevelDebug, ""
	switch k {
	case keeper.Acquired:
		msg = "lock acquired"
	case keeper.TakenOver:
		level, msg = slog.LevelWarn, "stale lock taken over"
	case keeper.Contended:
		msg = "lock is held"
	case keeper.Failed:
		msg = "lock not acquired"
	case keeper.Alert:
		level, msg = slog.LevelWarn, "lock holder is silent"
	case keeper.AlertCleared:
		level, msg = slog.LevelInfo, "lock holder is no longer silent"
	case keeper.Released:
		msg = "lock released"
	case keeper.ReleaseUnconfirmed:
		level, msg = slog.LevelWarn, "release not confirmed"
	case keeper.Lost:
		level, msg = slog.LevelError, "lock lost"
	case keeper.Heartbeat:
		failed := e.Err != nil
		if failed && !d.failing {
			level, msg = slog.LevelWarn, "heartbeat failed, retrying"
		}
		d.failing = failed
	}
	if msg == "" || !d.log.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{slog.String("lock", e.Info.Name), slog.Int64("id", e.Info.ID), slog.String("holder", e.Info.Holder)}
	if e.Info.Token != 0 {
		attrs = append(attrs, slog.Int64("token", e.Info.Token))
	}
	if e.Rival != "" {
		attrs = append(attrs, slog.String("rival", e.Rival))
	}
	if e.Age > 0 {
		attrs = append(attrs, slog.Duration("age", e.Age))
	}
	if e.Took > 0 {
		attrs = append(attrs, slog.Duration("took", e.Took))
	}
	if e.Reason != "" {
		attrs = append(attrs, slog.String("reason", string(e.Reason)))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.String("error", e.Err.Error()))
	}
	if e.Dropped > 0 {
		attrs = append(attrs, slog.Int("dropped", e.Dropped))
	}
	d.log.LogAttrs(ctx, level, msg, attrs...)
}
