package enginetest

import (
	"context"
	"errors"
	"time"

	"github.com/pgmutex/pgmutex"
)

var lossTests = []test{
	{
		name:  "Takeover",
		rule:  "The lock of a holder that died is taken over once it is stale, by whoever waits for it; the old hold has ended before the new grant.",
		needs: canKill,
		run: func(w *world) {
			a, b := w.mortal("a"), w.client("b")
			asked := time.Now()
			old := w.take(a, "x")
			w.busy(b, "x")
			w.h.Faulter.Kill(w.T, a.Client)
			h, err := b.Acquire(w.Context(), "x")
			granted := time.Now()
			// First of all, so that no time passes in which it could end.
			if w.can(Durable) {
				w.check(!old.Held(), "two believe that they hold the lock")
				w.check(granted.Sub(asked) >= w.h.Scale, "taken over after %s, though nothing is stale before %s", granted.Sub(asked), w.h.Scale)
			}
			w.must(err)
			lost := w.lost(old)
			w.check(lost.Reason() != "", "no reason")
			w.check(h.Token() > old.Token() || !w.can(Tokens), "token %d after %d", h.Token(), old.Token())
			w.check(a.HeldCount() == 0 && !a.IsHeld("x"), "a still counts the hold")
			w.must(h.Heartbeat(w.Context()))
			w.release(h)
		},
	},
	{
		name:  "TryTakesAStaleLock",
		rule:  "A single try takes a stale lock over.",
		needs: canKill,
		run: func(w *world) {
			a, b := w.mortal("a"), w.client("b")
			old := w.take(a, "x")
			w.h.Faulter.Kill(w.T, a.Client)
			var h *pgmutex.Hold
			w.until("a try to take over", func() bool {
				var err error
				h, err = b.TryAcquire(w.Context(), "x")
				w.check(err != nil || !old.Held() || !w.can(Durable), "two believe that they hold the lock")
				return err == nil
			})
			w.lost(old)
			w.release(h)
		},
	},
	{
		name:  "ThePromiseIsTheHolders",
		rule:  "A contender goes by what the holder promised, not by its own StaleAfter.",
		needs: Durable,
		run: func(w *world) {
			slow := pgmutex.Options{StaleAfter: 20 * w.h.Scale}
			a, b := w.clientWith("a", slow), w.mortal("b")
			h := w.take(a, "x")
			waiter := w.waiting(w.Context(), b, "x")
			w.pass(w.h.Scale*3/2, "the holder keeps its lock", func() bool {
				return h.Held() && !isOver(waiter.done)
			})
			w.busy(b, "x")
			w.must(h.Heartbeat(w.Context()))
			w.release(h)
			w.release(w.granted(waiter, "b"))
		},
	},
	{
		name: "HeartbeatsKeepTheHold",
		rule: "A hold that is renewed lasts, however long after StaleAfter.",
		run: func(w *world) {
			a, b := w.mortal("a"), w.client("b")
			h := w.take(a, "x")
			before := h.Deadline()
			waiter := w.waiting(w.Context(), b, "x")
			w.pass(2*w.h.Scale, "a renewed hold lasts", func() bool { return h.Held() && !isOver(waiter.done) })
			w.check(h.Deadline().After(before), "the deadline has not moved")
			w.check(a.rec.count("Heartbeat") > 2, "only %d heartbeats", a.rec.count("Heartbeat"))
			w.busy(b, "x")
			w.must(h.Err())
			w.release(h)
			w.release(w.granted(waiter, "b"))
		},
	},
	{
		name:  "LossIsToldOnce",
		rule:  "A loss is one error, wherever it is told: by the context, Err, Heartbeat, each Release and one Lost event. It is final.",
		needs: canKill,
		run: func(w *world) {
			a, b := w.mortal("a"), w.client("b")
			old := w.take(a, "x")
			w.h.Faulter.Kill(w.T, a.Client)
			lost := w.lost(old)
			for range 2 {
				equal(w, "Release", old.Release(w.Context()), error(lost))
			}
			event := w.event(a, "Lost")
			equal(w, "the event's error", event.Err, error(lost))
			equal(w, "the event's hold", event.Info, old.Info())
			equal(w, "the event's reason", event.Reason, lost.Reason())
			w.check(event.Reason != "" && event.Took > 0, "event %+v", event.Event)
			h, err := b.Acquire(w.Context(), "x")
			w.must(err)
			equal(w, "Err at last", old.Err(), error(lost))
			w.matches(a.Release(w.Context(), "x"), pgmutex.ErrNotHeld)
			equal(w, "Lost events", a.rec.count("Lost"), 1)
			equal(w, "Released events", a.rec.count("Released"), 0)
			w.must(h.Heartbeat(w.Context()))
		},
	},
	{
		name:  "DoTellsTheLoss",
		rule:  "Do returns the function's error joined with the loss, and the function's context ends with the loss as its cause.",
		needs: canKill,
		run: func(w *world) {
			a := w.mortal("a")
			var cause error
			err := a.Do(w.Context(), "x", func(ctx context.Context) error {
				w.h.Faulter.Kill(w.T, a.Client)
				w.after(ctx.Done(), "the function's context to end")
				cause = context.Cause(ctx)
				return errWork
			})
			w.matches(err, errWork, pgmutex.ErrLost)
			var lost *pgmutex.LostError
			w.check(errors.As(err, &lost) && error(lost) == cause, "Do told %v, the context %v", err, cause)
		},
	},
	{
		name:  "InnerWorkEndsWithTheOuterHold",
		rule:  "The loss of an outer hold ends the work under the holds within it.",
		needs: canKill,
		run: func(w *world) {
			a, b := w.mortal("a"), w.client("b")
			err := a.Do(w.Context(), "outer", func(outer context.Context) error {
				return b.Do(outer, "inner", func(inner context.Context) error {
					w.h.Faulter.Kill(w.T, a.Client)
					w.after(inner.Done(), "the inner context to end")
					w.matches(context.Cause(inner), pgmutex.ErrLost)
					w.check(b.IsHeld("inner"), "the inner hold ended too")
					return nil
				})
			})
			w.matches(err, pgmutex.ErrLost)
			w.free(b, "inner")
		},
	},
	{
		name:  "RunContendsAgainAfterALoss",
		rule:  "Run takes the lock again after a loss.",
		needs: Force | Inspect,
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			runs := 0
			err := a.Run(w.Context(), "x", func(ctx context.Context) error {
				if runs++; runs > 1 {
					return nil
				}
				w.must(b.ForceRelease(w.Context(), w.inspect(b, "x"), &pgmutex.ForceOptions{Now: true}))
				h, _ := pgmutex.FromContext(ctx)
				_ = h.Heartbeat(w.Context())
				w.after(ctx.Done(), "the function's context to end")
				return context.Cause(ctx)
			}, &pgmutex.RunOptions{MaxPause: w.h.Scale / 50})
			w.must(err)
			equal(w, "runs", runs, 2)
			w.event(a, "Lost") // it comes once the store has been asked for the reason
			equal(w, "Lost events", a.rec.count("Lost"), 1)
		},
	},
	{
		name:  "TokensRiseThroughTakeovers",
		rule:  "A takeover draws a higher token than every grant before it.",
		needs: Tokens | canKill,
		run: func(w *world) {
			last := int64(0)
			for _, holder := range []string{"a", "b", "c"} {
				c := w.mortal(holder)
				h, err := c.Acquire(w.Context(), "x")
				w.must(err)
				w.check(h.Token() > last, "token %d after %d", h.Token(), last)
				last = h.Token()
				w.h.Faulter.Kill(w.T, c.Client)
			}
		},
	},
	{
		name:  "NewHolderIsNotTouched",
		rule:  "Nothing that the former holder does after its loss reaches its successor.",
		needs: Durable | canHold,
		run: func(w *world) {
			a, b := w.mortal("a"), w.client("b")
			old := w.take(a, "x")
			release := w.h.Faulter.HoldReplies(w.T, a.Client)
			defer release()
			// Its heartbeats still arrive, so it is not stale; it only cannot
			// know that, and so ends before it could be.
			w.after(old.Context().Done(), "the hold to end")
			h, err := b.Acquire(w.Context(), "x")
			w.must(err)
			release()
			w.matches(old.Release(w.Context()), pgmutex.ErrLost)
			again := w.waiting(w.Context(), a, "x")
			w.pass(w.h.Scale/2, "the successor keeps the lock", func() bool {
				return h.Held() && h.Heartbeat(w.Context()) == nil && !isOver(again.done)
			})
			w.release(h)
			w.release(w.granted(again, "a"))
		},
	},
	{
		name:  "SessionEnds",
		rule:  "Where a hold is bound to a session, its end is told with that reason, and the lock is free.",
		needs: canCut,
		lacks: Durable,
		run: func(w *world) {
			a, b := w.mortal("a"), w.client("b")
			old := w.take(a, "x")
			w.h.Faulter.Cut(w.T, a.Client)
			lost := w.lost(old)
			equal(w, "reason", lost.Reason(), pgmutex.LostSessionEnded)
			w.free(b, "x")
			again, err := a.Acquire(w.Context(), "x")
			w.must(err)
			w.release(again)
		},
	},
}
