package enginetest

import (
	"context"
	"errors"

	"github.com/pgmutex/pgmutex"
)

var now = &pgmutex.ForceOptions{Now: true, Reason: "stuck since noon"}

var forceTests = []test{
	{
		name:  "ForceNow",
		rule:  "ForceRelease with Now ends the very hold that was shown; its holder is told that an operator did it, and the lock is free at once.",
		needs: Force | Inspect,
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			h := w.take(a, "x")
			other := w.take(a, "y")
			w.must(b.ForceRelease(w.Context(), w.inspect(b, "x"), now))
			next := w.take(b, "x")
			w.check(next.Token() > h.Token() || !w.can(Tokens), "token %d after %d", next.Token(), h.Token())
			_ = h.Heartbeat(w.Context()) // no later than by this it is told
			lost := w.lost(h)
			event := w.event(a, "Lost")
			equal(w, "the event's error", event.Err, error(lost))
			w.check(event.Reason != "", "no reason")
			if w.can(Durable) {
				equal(w, "reason", lost.Reason(), pgmutex.LostReleased)
				equal(w, "by", lost.By(), "b")
			}
			equal(w, "Release", h.Release(w.Context()), error(lost))
			w.must(next.Heartbeat(w.Context()))
			if w.can(Durable) {
				w.must(other.Heartbeat(w.Context()))
			}
			if w.can(History) {
				past := w.history(b, "x")
				if len(past) != 1 {
					w.Fatalf("%d holds in the history, want 1: %+v", len(past), past)
				}
				equal(w, "end", past[0].End, pgmutex.EndForced)
				equal(w, "term", past[0].Term, h.Info().Term)
				equal(w, "by", past[0].By, "b")
				equal(w, "reason", past[0].Reason, now.Reason)
			}
		},
	},
	{
		name:  "ForceNowServesWaiters",
		rule:  "A forced release lets the next waiter in, like any other.",
		needs: Force | Inspect,
		run: func(w *world) {
			a, b, c := w.client("a"), w.client("b"), w.client("c")
			w.take(a, "x")
			waiter := w.waiting(w.Context(), b, "x")
			w.must(c.ForceRelease(w.Context(), w.inspect(c, "x"), now))
			w.release(w.granted(waiter, "b"))
		},
	},
	{
		name:  "ForceIsAimed",
		rule:  "ForceRelease hits no later holder: it answers ErrHeld when the lock has changed hands, and ErrNotHeld when it is free.",
		needs: Force | Inspect,
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			free := w.inspect(b, "x")
			h := w.take(a, "x")
			seen := w.inspect(b, "x")
			w.release(h)
			// A status without a holder shows no hold, whatever has come since.
			for what, status := range map[string]pgmutex.Status{"free then": free, "free now": seen} {
				err := b.ForceRelease(w.Context(), status, now)
				w.check(errors.Is(err, pgmutex.ErrNotHeld) && !errors.Is(err, pgmutex.ErrHeld), "%s: %v", what, err)
			}
			for _, c := range []*client{b, a} { // the same holder's next hold is another one, too
				next := w.take(c, "x")
				err := b.ForceRelease(w.Context(), seen, now)
				w.matches(err, pgmutex.ErrHeld)
				w.differs(err, pgmutex.ErrNotHeld)
				w.must(next.Heartbeat(w.Context()))
				w.release(next)
			}
			err := b.ForceRelease(w.Context(), pgmutex.Status{Term: seen.Term}, now)
			w.check(err != nil && !errors.Is(err, pgmutex.ErrNotHeld), "a status without a name: %v", err)
		},
	},
	{
		name:  "ForceInANamespace",
		rule:  "A status from List or Inspect can be handed to ForceRelease as it is, in a namespace as well.",
		needs: Force | Inspect,
		run: func(w *world) {
			a, b := w.clientWith("a", pgmutex.Options{Namespace: "jobs"}), w.clientWith("b", pgmutex.Options{Namespace: "jobs"})
			w.take(a, "x")
			for status, err := range b.List(w.Context()) {
				w.must(err)
				w.must(b.ForceRelease(w.Context(), status, now))
			}
			w.free(b, "x")
		},
	},
	{
		name:  "Ask",
		rule:  "ForceRelease without Now asks the holder to stop: it learns of it by its next heartbeat, and the lock is kept until it has given it back.",
		needs: Ask,
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			stop := make(chan struct{})
			working := make(chan *pgmutex.Hold, 1)
			var cause error
			work := start(func() error {
				return a.Do(w.Context(), "x", func(ctx context.Context) error {
					h, _ := pgmutex.FromContext(ctx)
					working <- h
					<-ctx.Done()
					cause = context.Cause(ctx)
					<-stop
					return nil
				})
			})
			h := <-working
			w.must(b.ForceRelease(w.Context(), w.inspect(b, "x"), &pgmutex.ForceOptions{Reason: "please"}))
			w.check(w.inspect(b, "x").StopAsked || h.Err() != nil, "nobody can see that it is asked to stop")
			w.matches(h.Heartbeat(w.Context()), pgmutex.ErrLost)
			lost := w.lost(h)
			equal(w, "reason", lost.Reason(), pgmutex.LostReleased)
			equal(w, "by", lost.By(), "b")
			w.pass(w.h.Scale/10, "the lock is kept while the work goes on", func() bool {
				w.busy(b, "x")
				return true
			})
			close(stop)
			w.matches(w.result(work, "the work to stop"), pgmutex.ErrLost)
			w.matches(cause, pgmutex.ErrLost)
			w.free(b, "x")
			if w.can(History) {
				for _, past := range w.history(b, "x") {
					if past.Term != h.Info().Term {
						continue
					}
					equal(w, "end", past.End, pgmutex.EndForced)
					equal(w, "by", past.By, "b")
					equal(w, "why", past.Reason, "please")
				}
			}
		},
	},
	{
		name:  "AskIsAimed",
		rule:  "A request to stop reaches no later holder, and answers as a forced release does.",
		needs: Ask,
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			h := w.take(a, "x")
			seen := w.inspect(b, "x")
			w.release(h)
			w.matches(b.ForceRelease(w.Context(), seen, nil), pgmutex.ErrNotHeld)
			next := w.take(b, "x")
			w.matches(b.ForceRelease(w.Context(), seen, nil), pgmutex.ErrHeld)
			w.must(next.Heartbeat(w.Context()))
			w.check(!w.inspect(a, "x").StopAsked, "the next holder is asked to stop")
		},
	},
	{
		name:  "NoForce",
		rule:  "An engine that cannot force a release says so, and releases nothing.",
		lacks: Force | Ask,
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			h := w.take(a, "x")
			seen := pgmutex.Status{Name: "x", Holder: "a", Term: h.Info().Term, State: pgmutex.StateHeld}
			for _, how := range []*pgmutex.ForceOptions{nil, now} {
				w.matches(b.ForceRelease(w.Context(), seen, how), errors.ErrUnsupported)
			}
			w.must(h.Heartbeat(w.Context()))
			w.busy(b, "x")
		},
	},
	{
		name:  "NoAsk",
		rule:  "An engine that can end a hold and cannot ask its holder to stop says so, and releases nothing.",
		needs: Force | Inspect,
		lacks: Ask,
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			h := w.take(a, "x")
			w.matches(b.ForceRelease(w.Context(), w.inspect(b, "x"), nil), errors.ErrUnsupported)
			w.must(h.Heartbeat(w.Context()))
		},
	},
	{
		name:  "Guard",
		rule:  "Guard succeeds while the lock is held, as often as asked, and fails with ErrNotHeld after that.",
		needs: Guard,
		run: func(w *world) {
			a := w.client("a")
			h := w.take(a, "x")
			for range 2 {
				w.must(w.guard(h, nil))
			}
			w.must(h.Heartbeat(w.Context()))
			w.release(h)
			w.matches(w.guard(h, nil), pgmutex.ErrNotHeld)
			w.differs(w.guard(h, nil), pgmutex.ErrLost)
			w.must(w.guard(w.take(a, "x"), nil))
		},
	},
	{
		name:  "GuardAfterALoss",
		rule:  "Guard fails for a hold that has been ended in the store, whether its holder knows already or not.",
		needs: Guard | Force | Inspect,
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			h := w.take(a, "x")
			w.must(b.ForceRelease(w.Context(), w.inspect(b, "x"), now))
			w.matches(w.guard(h, nil), pgmutex.ErrNotHeld)
			w.take(b, "x")
			w.matches(w.guard(h, nil), pgmutex.ErrNotHeld)
			_ = h.Heartbeat(w.Context())
			w.lost(h)
			w.matches(w.guard(h, nil), pgmutex.ErrLost)
		},
	},
	{
		name:  "GuardKeepsOthersOut",
		rule:  "Nobody takes over a guarded hold before the guarding transaction has ended, even if its holder is dead and its lock stale.",
		needs: Guard | Durable | canKill,
		run: func(w *world) {
			if w.h.Transaction == nil {
				w.Log("no transaction to tie the hold to")
				return
			}
			a, b := w.mortal("a"), w.client("b")
			h := w.take(a, "x")
			w.must(w.guard(h, func() {
				w.h.Faulter.Kill(w.T, a.Client)
				w.pass(w.h.Scale*3/2, "a guarded hold is not taken over", func() bool {
					w.busy(b, "x")
					return true
				})
				w.check(!h.Held(), "still held by a")
			}))
			w.free(b, "x")
		},
	},
	{
		name:  "NoGuard",
		rule:  "An engine that cannot guard says so.",
		lacks: Guard,
		run: func(w *world) {
			h := w.take(w.client("a"), "x")
			w.matches(w.guard(h, nil), errors.ErrUnsupported)
			w.must(h.Heartbeat(w.Context()))
		},
	},
}

// guard guards a transaction by the hold, and runs inside before it ends.
func (w *world) guard(h *pgmutex.Hold, inside func()) error {
	w.Helper()
	if inside == nil {
		inside = func() {}
	}
	if w.h.Transaction == nil {
		err := h.Guard(w.Context(), func(context.Context, string, ...any) (int64, error) {
			return 0, errors.New("this store has no transactions")
		})
		inside()
		return err
	}
	return w.h.Transaction(w.T, func(exec pgmutex.Exec) error {
		if err := h.Guard(w.Context(), exec); err != nil {
			return err
		}
		inside()
		return nil
	})
}
