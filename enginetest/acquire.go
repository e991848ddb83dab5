package enginetest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/pgmutex/pgmutex"
)

type ctxKey struct{}

var acquireTests = []test{
	{
		name: "BusyTry",
		rule: "TryAcquire of a held lock fails with ErrHeld at once, and says who holds it, since when and for how long.",
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			h := w.take(a, "x")
			_, err := b.TryAcquire(w.Context(), "x")
			held := w.held(err)
			equal(w, "name", held.Name, "x")
			var acquire *pgmutex.AcquireError
			errors.As(err, &acquire)
			equal(w, "name of the error", acquire.Name, "x")
			equal(w, "timeout", acquire.Timeout, 0)
			w.check(strings.Contains(err.Error(), `"x"`), "the message does not name the lock: %v", err)
			if !w.can(Inspect) {
				return
			}
			equal(w, "holder", held.Holder, "a")
			w.check(held.Since.Equal(h.Info().AcquiredAt), "since %v, acquired at %v", held.Since, h.Info().AcquiredAt)
			w.check(held.Remaining > 0, "remaining %v", held.Remaining)
		},
	},
	{
		name: "ReleaseEndsTheHold",
		rule: "A release ends the hold for good, with ErrNotHeld as the cause, and without it being a loss; a second one is harmless.",
		run: func(w *world) {
			a := w.client("a")
			h := w.take(a, "x")
			ctx := h.Context()
			w.check(ctx.Err() == nil && h.Deadline().After(time.Now()), "the hold has ended already")
			w.release(h)
			w.check(isOver(ctx.Done()), "the context goes on")
			for _, err := range []error{context.Cause(ctx), h.Err(), h.Heartbeat(w.Context())} {
				w.matches(err, pgmutex.ErrNotHeld)
				w.differs(err, pgmutex.ErrLost, pgmutex.ErrClosed)
			}
			w.check(!h.Held(), "Held is true")
			w.check(!h.Deadline().After(time.Now()), "the deadline is in the future")
			w.release(h)
			w.must(h.Release(ended()))
			w.until("Released", func() bool { return a.rec.count("Released") == 1 })
		},
	},
	{
		name: "ReleaseFromManyGoroutines",
		rule: "Concurrent releases of one hold all succeed and release it once.",
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			h := w.take(a, "x")
			var wg sync.WaitGroup
			for range 8 {
				wg.Add(1)
				go func() {
					defer wg.Done()
					w.release(h)
				}()
			}
			wg.Wait()
			w.release(w.take(b, "x"))
			w.until("Released", func() bool { return a.rec.count("Released") > 0 })
			equal(w, "Released events", a.rec.count("Released"), 1)
		},
	},
	{
		name: "ReleaseIgnoresCancellation",
		rule: "A release with a context that has ended still gives the lock back.",
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			w.must(w.take(a, "x").Release(ended()))
			w.release(w.take(b, "x"))
			w.take(a, "y")
			w.must(a.Release(ended(), "y"))
			w.release(w.take(b, "y"))
		},
	},
	{
		name: "OldReleaseSparesTheSuccessor",
		rule: "A release acts on its own acquisition: it never ends that of a later holder, of the same client or another.",
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			old := w.take(a, "x")
			w.release(old)
			h := w.take(b, "x")
			w.release(old)
			w.matches(a.Release(w.Context(), "x"), pgmutex.ErrNotHeld)
			w.must(h.Heartbeat(w.Context()))
			w.busy(a, "x")
			w.release(h)
			h = w.take(a, "x")
			w.release(old)
			w.must(h.Heartbeat(w.Context()))
			w.busy(b, "x")
		},
	},
	{
		name: "ReleaseByName",
		rule: "Client.Release ends this client's hold of a name, whoever took it, and answers ErrNotHeld where it has none.",
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			w.matches(a.Release(w.Context(), "x"), pgmutex.ErrNotHeld)
			h := w.take(a, "x")
			w.matches(b.Release(w.Context(), "x"), pgmutex.ErrNotHeld)
			w.must(h.Heartbeat(w.Context()))
			w.must(a.Release(w.Context(), "x"))
			w.matches(h.Err(), pgmutex.ErrNotHeld)
			w.differs(h.Err(), pgmutex.ErrLost)
			w.matches(a.Release(w.Context(), "x"), pgmutex.ErrNotHeld)
			w.release(w.take(b, "x"))
			w.release(h)
		},
	},
	{
		name: "ReleaseAll",
		rule: "ReleaseAll gives back every hold of this client and no other, returns their number, and leaves the client usable.",
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			var holds []*pgmutex.Hold
			for _, name := range []string{"one", "two", "three"} {
				holds = append(holds, w.take(a, name))
			}
			other := w.take(b, "other")
			n, err := a.ReleaseAll(w.Context())
			w.must(err)
			equal(w, "released", n, 3)
			equal(w, "held", a.HeldCount(), 0)
			for _, h := range holds {
				w.matches(h.Err(), pgmutex.ErrNotHeld)
				w.release(w.take(b, h.Name()))
			}
			w.must(other.Heartbeat(w.Context()))
			n, err = a.ReleaseAll(w.Context())
			w.must(err)
			equal(w, "released the second time", n, 0)
			w.release(w.take(a, "one"))
		},
	},
	{
		name: "ContextBoundsOnlyTheWait",
		rule: "The end of Acquire's context does not end the hold; its values are carried on.",
		run: func(w *world) {
			a := w.client("a")
			ctx, cancel := context.WithCancel(context.WithValue(w.Context(), ctxKey{}, "value"))
			h, err := a.Acquire(ctx, "x")
			w.must(err)
			cancel()
			w.must(h.Heartbeat(w.Context()))
			w.check(h.Context().Err() == nil && h.Held(), "the hold ended with the context of the wait")
			equal(w, "value", h.Context().Value(ctxKey{}), any("value"))
			w.release(h)
		},
	},
	{
		name: "Bind",
		rule: "With Bind the end of Acquire's context ends the hold's context with its cause, and nothing else: the lock is kept until it is released.",
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			why := errors.New("shutting down")
			ctx, cancel := context.WithCancelCause(w.Context())
			h, err := a.With(pgmutex.AcquireOptions{Bind: true}).Acquire(ctx, "x")
			w.must(err)
			w.check(h.Context().Err() == nil, "the context has ended already")
			cancel(why)
			w.after(h.Context().Done(), "the bound context to end")
			equal(w, "cause", context.Cause(h.Context()), why)
			w.check(h.Held() && h.Err() == nil, "the hold ended with the bound context: %v", h.Err())
			w.must(h.Heartbeat(w.Context()))
			w.busy(b, "x")
			w.release(h)
			w.release(w.take(b, "x"))
		},
	},
	{
		name: "EndedContextAsksNothing",
		rule: "An acquisition whose context has ended before the call asks nothing and takes nothing.",
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			h := w.take(a, "x")
			why := errors.New("no longer wanted")
			ctx, cancel := context.WithCancelCause(w.Context())
			cancel(why)
			acquire := map[string]func(string) error{
				"TryAcquire": func(name string) error { _, err := b.TryAcquire(ctx, name); return err },
				"Acquire":    func(name string) error { _, err := b.Acquire(ctx, name); return err },
				"Do":         func(name string) error { return b.Do(ctx, name, never(w)) },
			}
			for method, call := range acquire {
				for _, name := range []string{"x", "free"} {
					err := call(name)
					if err == nil {
						w.Fatalf("%s(%q) succeeded", method, name)
					}
					w.matches(err, context.Canceled, why)
					w.differs(err, pgmutex.ErrHeld, pgmutex.ErrUnknown)
				}
			}
			w.release(w.take(a, "free"))
			equal(w, "holds", b.HeldCount(), 0)
			equal(w, "Contended events", b.rec.count("Contended"), 0)
			w.release(h)
		},
	},
	{
		name: "HeartbeatMovesTheDeadline",
		rule: "A manual heartbeat is confirmed while the lock is held, and moves the deadline.",
		run: func(w *world) {
			a := w.client("a")
			h := w.take(a, "x")
			before := h.Deadline()
			w.until("the deadline to move", func() bool {
				w.must(h.Heartbeat(w.Context()))
				return h.Deadline().After(before)
			})
			beat := w.event(a, "Heartbeat")
			equal(w, "name", beat.Info.Name, "x")
			w.check(beat.Err == nil && beat.Took >= 0 && beat.Margin > 0, "event %+v", beat.Event)
		},
	},
	{
		name: "WithSharesTheClient",
		rule: "With changes how locks are taken and nothing else: holds, registry and exclusion are the same client's.",
		run: func(w *world) {
			a := w.client("a")
			other := a.With(pgmutex.AcquireOptions{Wait: pgmutex.NoWait})
			h, err := other.TryAcquire(w.Context(), "x")
			w.must(err)
			w.check(a.IsHeld("x") && other.IsHeld("x"), "one of them does not know the hold")
			w.busy(a, "x")
			_, err = other.Acquire(w.Context(), "x")
			w.held(err)
			w.must(a.Release(w.Context(), "x"))
			w.check(!h.Held(), "still held")
			equal(w, "holder", other.HolderID(), "a")
		},
	},
}

// never returns a function that must not be run.
func never(w *world) func(context.Context) error {
	return func(context.Context) error {
		w.Error("the function ran without the lock")
		return nil
	}
}
