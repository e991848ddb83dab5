package enginetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pgmutex/pgmutex"
)

var waitingTests = []test{
	{
		name: "WaiterIsServed",
		rule: "A release lets a waiter in, of another client or of the same one.",
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			for _, next := range []*client{b, a} {
				h := w.take(a, "x")
				waiter := w.waiting(w.Context(), next, "x")
				w.release(h)
				got := w.granted(waiter, "the waiter")
				w.check(got.Held(), "not held")
				w.release(got)
			}
		},
	},
	{
		name: "WaitLimit",
		rule: "AcquireOptions.Wait limits the wait alone; its end is ErrHeld, with the limit as the error's Timeout and the holder.",
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			w.take(a, "x")
			for method, call := range map[string]func(*pgmutex.Client) error{
				"Acquire": func(c *pgmutex.Client) error { _, err := c.Acquire(w.Context(), "x"); return err },
				"Do":      func(c *pgmutex.Client) error { return c.Do(w.Context(), "x", never(w)) },
			} {
				var took time.Duration
				limit, err := w.limited(func(limit time.Duration) error {
					begin := time.Now()
					err := call(b.With(pgmutex.AcquireOptions{Wait: limit}))
					took = time.Since(begin)
					return err
				})
				held := w.held(err)
				if w.can(Inspect) {
					equal(w, "holder", held.Holder, "a")
				}
				w.differs(err, context.DeadlineExceeded, context.Canceled)
				var acquire *pgmutex.AcquireError
				errors.As(err, &acquire)
				equal(w, method+": name", acquire.Name, "x")
				equal(w, method+": timeout", acquire.Timeout, limit)
				w.check(strings.Contains(acquire.Reason, "timeout"), "%s: reason %q", method, acquire.Reason)
				w.check(took >= limit, "%s: gave up after %s", method, took)
			}
			limit := w.h.Scale / 2
			h, err := b.With(pgmutex.AcquireOptions{Wait: limit}).Acquire(w.Context(), "free")
			w.must(err)
			w.pass(2*limit, "a hold is not touched by the limit of its wait", h.Held)
			w.check(h.Context().Err() == nil, "the context ended with the wait")
		},
	},
	{
		name: "ContextEndsTheWait",
		rule: "A wait that its context ends fails with ErrHeld and the context's error and cause beside it; nothing is taken afterwards.",
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			h := w.take(a, "x")
			_, err := w.limited(func(limit time.Duration) error {
				ctx, cancel := context.WithTimeout(w.Context(), limit)
				defer cancel()
				_, err := b.Acquire(ctx, "x")
				return err
			})
			w.held(err)
			w.matches(err, context.DeadlineExceeded)
			var acquire *pgmutex.AcquireError
			errors.As(err, &acquire)
			equal(w, "timeout", acquire.Timeout, 0)

			why := errors.New("no longer wanted")
			caused, stop := context.WithCancelCause(w.Context())
			c := w.client("c") // which no event of another wait is still due to
			waiter := w.waiting(caused, c, "x")
			stop(why)
			err = w.result(waiter, "the wait to end")
			w.held(err)
			w.matches(err, context.Canceled, why)

			w.release(h)
			w.free(a, "x")
			equal(w, "holds of b", b.HeldCount(), 0)
			equal(w, "holds of c", c.HeldCount(), 0)
		},
	},
	{
		name: "NoWait",
		rule: "With NoWait, Acquire and Do behave as TryAcquire and TryDo.",
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			h := w.take(a, "x")
			hasty := b.With(pgmutex.AcquireOptions{Wait: pgmutex.NoWait})
			_, err := hasty.Acquire(w.Context(), "x")
			w.held(err)
			w.held(hasty.Do(w.Context(), "x", never(w)))
			w.held(hasty.Singleton("x", pgmutex.WaitIfHeld, never(w))(w.Context()))
			equal(w, "Waiting events", b.rec.count("Waiting"), 0)
			w.release(h)
			got, err := hasty.Acquire(w.Context(), "x")
			w.must(err)
			w.release(got)
			w.must(hasty.Do(w.Context(), "x", func(context.Context) error { return nil }))
		},
	},
	{
		name: "AllWaitersAreServed",
		rule: "However many wait, each gets the lock once and nobody is forgotten.",
		run: func(w *world) {
			a := w.client("a")
			h := w.take(a, "x")
			var waiters []*call
			for i := range 2 {
				c := w.clientWith(fmt.Sprintf("waiter-%d", i), pgmutex.Options{PollInterval: w.h.Scale / 50})
				waiters = append(waiters, w.waiting(w.Context(), c, "x"))
				for range 3 {
					waiters = append(waiters, acquiring(w.Context(), c.Client, "x"))
				}
			}
			w.release(h)
			for served := range len(waiters) {
				i := 0
				w.until(fmt.Sprintf("grant %d of %d", served+1, len(waiters)), func() bool {
					for i = range waiters {
						if isOver(waiters[i].done) {
							return true
						}
					}
					return false
				})
				got := w.granted(waiters[i], "a waiter")
				waiters = append(waiters[:i], waiters[i+1:]...)
				for _, other := range waiters {
					if isOver(other.done) {
						w.Fatalf("two at a time, or an error: %v", other.err)
					}
				}
				w.release(got)
			}
			w.free(a, "x")
		},
	},
	{
		name: "WaitEndsAsItIsServed",
		rule: "A wait whose context ends while the lock is being freed either holds it or leaves nothing behind.",
		run: func(w *world) {
			a, b := w.client("a"), w.clientWith("b", pgmutex.Options{PollInterval: w.h.Scale / 100})
			for range 5 {
				// Not a try: what came of b's last attempt after it had left may
				// just be on its way back.
				h, err := a.Acquire(w.Context(), "x")
				w.must(err)
				ctx, cancel := context.WithCancel(w.Context())
				waiter := w.waiting(ctx, b, "x")
				go cancel()
				w.release(h)
				if err := w.result(waiter, "the wait to end"); err == nil {
					w.release(waiter.hold)
				} else {
					w.matches(err, context.Canceled)
				}
				w.free(a, "x")
				equal(w, "holds of b", b.HeldCount(), 0)
			}
		},
	},
	{
		name:  "Hints",
		rule:  "A waiter is woken by a release, not by polling.",
		needs: Hints,
		run: func(w *world) {
			a, b := w.client("a"), w.clientWith("b", pgmutex.Options{PollInterval: 5 * time.Minute})
			for range 3 {
				h := w.take(a, "x")
				waiter := w.waiting(w.Context(), b, "x")
				w.release(h)
				released := time.Now()
				got := w.granted(waiter, "the waiter")
				// Nothing but a hint comes that early: the alert for a silent
				// holder is due after 30 s by default, the poll after minutes.
				took := time.Since(released)
				w.check(took < 5*time.Second, "handed over after %s", took)
				w.release(got)
			}
		},
	},
	{
		name:  "NoHints",
		rule:  "Where nothing wakes a waiter, it polls, and not more often than PollInterval asks for.",
		lacks: Hints,
		run: func(w *world) {
			a, b := w.client("a"), w.clientWith("b", pgmutex.Options{PollInterval: w.h.Scale})
			h := w.take(a, "x")
			waiter := w.waiting(w.Context(), b, "x")
			looked := time.Now()
			w.release(h)
			w.release(w.granted(waiter, "the waiter"))
			// The interval is jittered down to a half.
			took := time.Since(looked)
			w.check(took > w.h.Scale/4, "handed over after %s, though nothing was to wake it", took)
		},
	},
}

var lineTests = []test{
	{
		name:  "FirstComeFirstServed",
		rule:  "Waiters of different clients get the lock in the order in which they came.",
		needs: Queue,
		run: func(w *world) {
			a := w.client("a")
			h := w.take(a, "x")
			var waiters []*call
			var clients []*client
			for _, holder := range []string{"b", "c", "d", "e"} {
				c := w.client(holder)
				clients = append(clients, c)
				waiters = append(waiters, w.waiting(w.Context(), c, "x"))
			}
			for i, c := range clients {
				equal(w, "place of "+c.HolderID(), c.rec.of("Waiting")[0].Place, i+1)
			}
			for i, c := range clients {
				w.release(h)
				h = w.granted(waiters[i], c.HolderID())
				for _, later := range waiters[i+1:] {
					w.check(!isOver(later.done), "somebody was served out of turn")
				}
			}
			w.release(h)
		},
	},
	{
		name:  "AcquireDoesNotBarge",
		rule:  "Acquire never overtakes those who wait, even if the lock is free for a moment.",
		needs: Queue,
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			h := w.take(a, "x")
			waiter := w.waiting(w.Context(), b, "x")
			again := acquiring(w.Context(), a.Client, "x")
			w.until("a to wait as well", func() bool { return a.rec.count("Waiting") > 0 })
			w.release(h)
			got := w.granted(waiter, "b")
			w.check(!isOver(again.done), "a overtook b")
			w.release(got)
			w.release(w.granted(again, "a"))
		},
	},
	{
		name: "WaiterThatLeaves",
		rule: "A waiter that gives up does not keep those behind it waiting.",
		run: func(w *world) {
			a, b, c := w.client("a"), w.client("b"), w.client("c")
			h := w.take(a, "x")
			ctx, cancel := context.WithCancel(w.Context())
			first := w.waiting(ctx, b, "x")
			second := w.waiting(w.Context(), c, "x")
			cancel()
			w.held(w.result(first, "b to give up"))
			w.release(h)
			w.release(w.granted(second, "c"))
			w.free(a, "x")
		},
	},
	{
		name:  "DeadWaiter",
		rule:  "A waiter that died at the head of the line does not block those behind it.",
		needs: canKill,
		run: func(w *world) {
			a, b, c := w.client("a"), w.mortal("b"), w.client("c")
			h := w.take(a, "x")
			w.waiting(w.Context(), b, "x")
			second := w.waiting(w.Context(), c, "x")
			w.h.Faulter.Kill(w.T, b.Client)
			w.release(h)
			w.release(w.granted(second, "c"))
			w.free(a, "x")
		},
	},
	{
		name:  "WaitSurvivesACut",
		rule:  "Once the store has said that the lock is held, a broken connection does not end the wait.",
		needs: canCut,
		run: func(w *world) {
			a, b := w.client("a"), w.clientWith("b", pgmutex.Options{PollInterval: w.h.Scale / 10})
			h := w.take(a, "x")
			waiter := w.waiting(w.Context(), b, "x")
			w.h.Faulter.Cut(w.T, b.Client)
			seen := b.rec.count("Waiting")
			// It looks again after the cut before the lock is freed, so that it is
			// the wait that goes on and not just a grant that came in time.
			if !w.can(Hints) {
				w.until("b to look again", func() bool { return b.rec.count("Waiting") > seen || isOver(waiter.done) })
			}
			w.release(h)
			w.release(w.granted(waiter, "b"))
		},
	},
}
