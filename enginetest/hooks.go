package enginetest

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/pgmutex/pgmutex"
)

var hookTests = []test{
	{
		name: "EventOrder",
		rule: "Hooks are told of a hold in the order in which things happen to it, with the hold's facts.",
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			h := w.take(a, "x")
			w.busy(b, "x")
			waiter := w.waiting(w.Context(), b, "x")
			w.release(h)
			next := w.granted(waiter, "b")
			w.release(next)
			w.event(a, "Released")
			w.event(b, "Released")

			w.sequence(a, "Acquired", "Released")
			w.sequence(b, "Contended", "Failed", "Contended", "Acquired", "Released")
			for _, n := range a.rec.of("Acquired", "Released") {
				equal(w, n.kind+" of a", n.Info, h.Info())
				w.check(n.Took >= 0 && n.Err == nil, "%s of a: %+v", n.kind, n.Event)
			}
			for _, n := range b.rec.of("Acquired", "Released") {
				equal(w, n.kind+" of b", n.Info, next.Info())
			}
			for _, n := range b.rec.of("Contended") {
				equal(w, "name", n.Info.Name, "x")
				equal(w, "id", n.Info.ID, h.Info().ID)
				equal(w, "holder", n.Info.Holder, "b")
				equal(w, "engine", n.Info.Engine, h.Info().Engine)
				if w.can(Inspect) {
					equal(w, "rival", n.Rival, "a")
					equal(w, "pid of the rival", n.Details["pid"] != "", true)
				}
			}
			w.check(!w.event(a, "Acquired").Start.IsZero(), "Acquired has no start")
		},
	},
	{
		name: "FailedTellsTheCallersError",
		rule: "Failed carries the very error that the caller gets, whatever the reason, and the values of its context.",
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			w.take(a, "x")
			_, held := b.TryAcquire(w.Context(), "x")
			_, bad := b.TryAcquire(w.Context(), "")
			_, over := b.Acquire(ended(), "y")
			w.until("three failures", func() bool { return b.rec.count("Failed") == 3 })
			for i, want := range []error{held, bad, over} {
				got := b.rec.of("Failed")[i]
				equal(w, "error", got.Err, want)
				equal(w, "name", got.Info.Name, []string{"x", "", "y"}[i])
			}
		},
	},
	{
		name: "HookContext",
		rule: "A hook's context carries the values of the acquisition's context and does not end with it.",
		run: func(w *world) {
			var alive, valued atomic.Int32
			look := func(ctx context.Context, _ pgmutex.Event) {
				if ctx.Err() == nil {
					alive.Add(1)
				}
				if ctx.Value(ctxKey{}) == "value" {
					valued.Add(1)
				}
			}
			a := w.clientWith("a", pgmutex.Options{Hooks: []pgmutex.Hooks{{Acquired: look, Released: look, Failed: look}}})
			ctx, cancel := context.WithCancel(context.WithValue(w.Context(), ctxKey{}, "value"))
			h, err := a.Acquire(ctx, "x")
			w.must(err)
			cancel()
			w.release(h)
			_, err = a.Acquire(ctx, "y")
			w.check(err != nil, "acquired with a context that has ended")
			w.until("three events", func() bool { return a.rec.count("Failed") == 1 && alive.Load() == 3 })
			equal(w, "events with the context's value", valued.Load(), 3)
		},
	},
	{
		name: "PanickingHook",
		rule: "A hook that panics breaks no lock, no other hook and no later event.",
		run: func(w *world) {
			panics := func(context.Context, pgmutex.Event) { panic("boom") }
			a := w.clientWith("a", pgmutex.Options{Hooks: []pgmutex.Hooks{
				{Acquired: panics, Released: panics, Contended: panics, Failed: panics, Heartbeat: panics},
			}})
			for range 2 {
				h := w.take(a, "x")
				w.busy(a, "x")
				w.must(h.Heartbeat(w.Context()))
				w.release(h)
			}
			w.until("all events", func() bool { return a.rec.count("Released") == 2 })
			w.must(a.Close(w.Context()))
		},
	},
	{
		name: "BlockingHook",
		rule: "A hook that blocks delays no lock and no heartbeat, and Close does not wait for it for long.",
		run: func(w *world) {
			stuck, unstick := make(chan struct{}), make(chan struct{})
			defer close(unstick)
			var once sync.Once
			a := w.clientWith("a", pgmutex.Options{StaleAfter: w.h.Scale, Hooks: []pgmutex.Hooks{{
				Acquired: func(context.Context, pgmutex.Event) {
					once.Do(func() { close(stuck) })
					<-unstick
				},
			}}})
			b := w.client("b")
			h := w.take(a, "x")
			w.after(stuck, "the hook to block")
			w.release(w.take(a, "y"))
			w.pass(w.h.Scale*3/2, "the hold is renewed", h.Held)
			w.busy(b, "x")
			w.release(h)
			closing := start(func() error { return a.Close(w.Context()) })
			w.must(w.result(closing, "Close beside a blocked hook"))
			w.release(w.take(b, "x"))
		},
	},
	{
		name: "HookCallsBack",
		rule: "A hook may call every method of its client, Close included.",
		run: func(w *world) {
			var a *client
			opened, done := make(chan struct{}), make(chan struct{})
			var once sync.Once
			var errs [4]error
			a = w.clientWith("a", pgmutex.Options{Hooks: []pgmutex.Hooks{{
				Released: func(ctx context.Context, e pgmutex.Event) {
					<-opened
					once.Do(func() {
						defer close(done)
						var h *pgmutex.Hold
						if h, errs[0] = a.Acquire(ctx, e.Info.Name); errs[0] == nil {
							errs[1] = h.Release(ctx)
						}
						_, errs[2] = a.ReleaseAll(ctx)
						errs[3] = a.Close(ctx)
					})
				},
			}}})
			close(opened)
			w.release(w.take(a, "x"))
			w.after(done, "the hook to return")
			w.must(errors.Join(errs[:]...))
			_, err := a.TryAcquire(w.Context(), "x")
			w.matches(err, pgmutex.ErrClosed)
			w.must(a.Close(w.Context()))
			w.release(w.take(w.client("b"), "x"))
		},
	},
	{
		name: "ManyHooks",
		rule: "Every set of hooks is told, in the order of the options.",
		run: func(w *world) {
			var mu sync.Mutex
			var told []int
			hooks := make([]pgmutex.Hooks, 3)
			for i := range hooks {
				hooks[i].Acquired = func(context.Context, pgmutex.Event) {
					mu.Lock()
					defer mu.Unlock()
					told = append(told, i)
				}
			}
			a := w.clientWith("a", pgmutex.Options{Hooks: hooks})
			hooks[0].Acquired = nil // the options were copied
			w.release(w.take(a, "x"))
			w.event(a, "Released")
			mu.Lock()
			defer mu.Unlock()
			w.check(len(told) == 3 && told[0] == 0 && told[1] == 1 && told[2] == 2, "told in the order %v", told)
		},
	},
	{
		name: "Log",
		rule: "The log is told of acquisitions and releases at DEBUG, with the lock, its id and the holder, and of nothing above that in normal work.",
		run: func(w *world) {
			log := &logRecorder{}
			a := w.clientWith("a", pgmutex.Options{Logger: slog.New(log)})
			h := w.take(a, "x")
			w.busy(a, "x")
			w.release(h)
			w.must(a.Close(w.Context()))
			for _, msg := range []string{"lock acquired", "lock is held", "lock not acquired", "lock released"} {
				attrs := log.first(msg)
				if attrs == nil {
					w.Errorf("no record %q", msg)
					continue
				}
				equal(w, msg+": lock", attrs["lock"], "x")
				equal(w, msg+": holder", attrs["holder"], "a")
				w.check(attrs["id"] != "", "%s: no id", msg)
			}
			equal(w, "records above DEBUG", log.above(), 0)
		},
	},
}

// sequence checks the kinds of a client's events, those aside that come as often
// as time passes.
func (w *world) sequence(c *client, want ...string) {
	w.Helper()
	var got []string
	for _, n := range c.rec.of("Acquired", "TakenOver", "Contended", "Failed", "Alert", "AlertCleared", "Released", "ReleaseUnconfirmed", "Lost") {
		got = append(got, n.kind)
	}
	same := len(got) == len(want)
	for i := range min(len(got), len(want)) {
		same = same && got[i] == want[i]
	}
	w.check(same, "events of %s: got %v, want %v", c.HolderID(), got, want)
}

// A logRecorder is a slog.Handler that keeps the records.
type logRecorder struct {
	mu      sync.Mutex
	records []slog.Record
}

func (l *logRecorder) Enabled(context.Context, slog.Level) bool { return true }
func (l *logRecorder) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logRecorder) WithGroup(string) slog.Handler            { return l }

func (l *logRecorder) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = append(l.records, r)
	return nil
}

// first returns the attributes of the first record with that message.
func (l *logRecorder) first(msg string) map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.records {
		if r.Message == msg {
			attrs := map[string]string{}
			r.Attrs(func(a slog.Attr) bool {
				attrs[a.Key] = a.Value.String()
				return true
			})
			return attrs
		}
	}
	return nil
}

func (l *logRecorder) above() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.records {
		if r.Level > slog.LevelDebug {
			n++
		}
	}
	return n
}
