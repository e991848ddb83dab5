package enginetest

import (
	"context"
	"errors"
	"time"

	"github.com/pgmutex/pgmutex"
)

var faultTests = []test{
	{
		name:  "OneFailedHeartbeat",
		rule:  "A heartbeat that fails does not end the hold: it is repeated while there is time.",
		needs: Durable | canCut,
		run: func(w *world) {
			a, b := w.mortal("a"), w.client("b")
			h := w.take(a, "x")
			w.h.Faulter.Cut(w.T, a.Client)
			w.pass(w.h.Scale*3/2, "the hold outlives its connection", h.Held)
			w.busy(b, "x")
			w.must(h.Heartbeat(w.Context()))
			w.release(h)
		},
	},
	{
		name:  "HeartbeatNotConfirmed",
		rule:  "A heartbeat without an answer is neither a confirmation nor a loss: the hold is valid until its deadline.",
		needs: Durable | canHold,
		run: func(w *world) {
			a := w.client("a")
			h := w.take(a, "x")
			release := w.h.Faulter.HoldReplies(w.T, a.Client)
			defer release()
			ctx, cancel := context.WithTimeout(w.Context(), w.h.Scale/10)
			defer cancel()
			err := h.Heartbeat(ctx)
			w.check(err != nil, "a heartbeat without an answer was confirmed")
			w.differs(err, pgmutex.ErrLost, pgmutex.ErrNotHeld)
			w.check(h.Held() && h.Context().Err() == nil, "the hold has ended: %v", h.Err())
			release()
			w.until("a heartbeat to be confirmed", func() bool { return h.Heartbeat(w.Context()) == nil })
			w.release(h)
		},
	},
	{
		name:  "LateGrantIsGivenBack",
		rule:  "An attempt that ends without an answer is ErrUnknown, neither granted nor held, and what it took in the store is given back.",
		needs: canHold,
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			for method, try := range map[string]func(context.Context) (*pgmutex.Hold, error){
				"TryAcquire": func(ctx context.Context) (*pgmutex.Hold, error) { return a.TryAcquire(ctx, "x") },
				"Acquire":    func(ctx context.Context) (*pgmutex.Hold, error) { return a.Acquire(ctx, "x") },
			} {
				var h *pgmutex.Hold
				release, err := w.unanswered(a, func(func()) (err error) {
					ctx, cancel := context.WithTimeout(w.Context(), w.h.Scale/10)
					defer cancel()
					h, err = try(ctx)
					return err
				})
				if h != nil || err == nil {
					w.Fatalf("%s without an answer: %v, %v", method, h, err)
				}
				w.matches(err, pgmutex.ErrUnknown, context.DeadlineExceeded)
				w.differs(err, pgmutex.ErrHeld, pgmutex.ErrClosed, pgmutex.ErrLost)
				var acquire *pgmutex.AcquireError
				w.check(errors.As(err, &acquire) && acquire.Reason != "", "%s: not an *AcquireError with a reason: %v", method, err)
				equal(w, "holds", a.HeldCount(), 0)
				release()
				w.free(b, "x")
			}
		},
	},
	{
		name:  "OwnGhostIsNoObstacle",
		rule:  "After an attempt with an unknown outcome, the same client's next acquisition succeeds and is the only hold.",
		needs: canHold,
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			release, err := w.unanswered(a, func(func()) error {
				ctx, cancel := context.WithTimeout(w.Context(), w.h.Scale/10)
				defer cancel()
				_, err := a.TryAcquire(ctx, "x")
				return err
			})
			w.matches(err, pgmutex.ErrUnknown)
			release()
			h, err := a.Acquire(w.Context(), "x")
			w.must(err)
			w.busy(b, "x")
			w.pass(w.h.Scale/4, "the clean-up spares the new hold", h.Held)
			w.must(h.Heartbeat(w.Context()))
			w.release(h)
			w.free(b, "x")
		},
	},
	{
		name:  "TrustCountsFromTheRequest",
		rule:  "A grant whose answer comes after its time of trust, counted from the request, is not held.",
		needs: Durable | canHold,
		run: func(w *world) {
			a, b := w.mortal("a"), w.client("b")
			_, err := w.unanswered(a, func(release func()) error {
				try := start(func() error { _, err := a.TryAcquire(w.Context(), "x"); return err })
				// Longer than the trust, which begins a little later than this does.
				w.pass(w.h.Scale, "not granted without an answer", func() bool { return !isOver(try.done) || try.err != nil })
				release()
				return w.result(try, "the try to end")
			})
			w.matches(err, pgmutex.ErrUnknown)
			equal(w, "holds", a.HeldCount(), 0)
			w.free(b, "x")
		},
	},
	{
		name:  "SlowGrantIsTrustedForLess",
		rule:  "However long the answer to an acquisition or a heartbeat took, the deadline counts from the request.",
		needs: Durable | canHold,
		run: func(w *world) {
			// No heartbeat of the client's own comes in between.
			a := w.clientWith("a", pgmutex.Options{StaleAfter: 20 * w.h.Scale, Heartbeat: 4 * w.h.Scale})
			w.release(w.take(a, "warm-up"))
			trust := 20 * w.h.Scale / 3 * 2
			slowly := func(what string, ask func() error) (answered time.Time) {
				release := w.h.Faulter.HoldReplies(w.T, a.Client)
				defer release()
				asked := start(ask)
				w.pass(w.h.Scale/4, "no answer yet", func() bool { return !isOver(asked.done) })
				answered = time.Now()
				release()
				w.must(w.result(asked, what))
				return answered
			}
			var h *pgmutex.Hold
			answered := slowly("the acquisition", func() (err error) {
				h, err = a.TryAcquire(w.Context(), "x")
				return err
			})
			w.check(h.Deadline().Before(answered.Add(trust)), "the grant is trusted from its answer on")
			answered = slowly("the heartbeat", func() error { return h.Heartbeat(w.Context()) })
			w.check(h.Deadline().Before(answered.Add(trust)), "the heartbeat is trusted from its answer on")
		},
	},
	{
		name:  "LateAnswersReviveNothing",
		rule:  "Once a hold has ended by its deadline, no answer makes it valid again, however positive.",
		needs: Durable | canHold,
		run: func(w *world) {
			a, b := w.mortal("a"), w.client("b")
			h := w.take(a, "x")
			release := w.h.Faulter.HoldReplies(w.T, a.Client)
			defer release()
			w.after(h.Context().Done(), "the hold to end")
			release()
			lost := w.lost(h)
			w.pass(w.h.Scale/2, "a lost hold stays lost", func() bool { return !h.Held() && h.Err() == error(lost) })
			equal(w, "Release", h.Release(w.Context()), error(lost))
			w.free(b, "x")
		},
	},
	{
		name:  "ReleaseNotConfirmed",
		rule:  "A release without an answer ends the hold, says that it is not confirmed, and goes on in the background until it is.",
		needs: Durable | canHold,
		run: func(w *world) {
			a, b := w.clientWith("a", pgmutex.Options{ReleaseTimeout: w.h.Scale / 10}), w.client("b")
			h := w.take(a, "x")
			release := w.h.Faulter.HoldReplies(w.T, a.Client)
			defer release()
			err := h.Release(w.Context())
			w.check(err != nil, "a release without an answer was confirmed")
			w.differs(err, pgmutex.ErrLost, pgmutex.ErrNotHeld, pgmutex.ErrHeld)
			w.check(!h.Held(), "still held")
			w.matches(h.Err(), pgmutex.ErrNotHeld)
			w.differs(h.Err(), pgmutex.ErrLost)
			event := w.event(a, "ReleaseUnconfirmed")
			w.check(event.Err != nil && event.Info == h.Info(), "event %+v", event.Event)
			release()
			w.free(b, "x")
			w.event(a, "Released")
			w.release(h)
			equal(w, "Released events", a.rec.count("Released"), 1)
		},
	},
	{
		name:  "DoForgivesAnUnconfirmedRelease",
		rule:  "A release that could not be confirmed is no error of Do's: the work was done.",
		needs: Durable | canHold,
		run: func(w *world) {
			a, b := w.clientWith("a", pgmutex.Options{ReleaseTimeout: w.h.Scale / 10}), w.client("b")
			release := func() {}
			w.must(a.Do(w.Context(), "x", func(context.Context) error {
				release = w.h.Faulter.HoldReplies(w.T, a.Client)
				return nil
			}))
			w.event(a, "ReleaseUnconfirmed")
			release()
			w.free(b, "x")
		},
	},
}
