package enginetest

import (
	"context"
	"errors"
	"time"

	"github.com/pgmutex/pgmutex"
)

var errWork = errors.New("the work failed")

var workTests = []test{
	{
		name: "DoReturns",
		rule: "Do runs the function under the lock and releases it on return; the function's error comes back as it is.",
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			for method, do := range doers(a.Client) {
				for _, want := range []error{nil, errWork} {
					got := do(w.Context(), "x", func(ctx context.Context) error {
						h, ok := pgmutex.FromContext(ctx)
						w.check(ok && h.Held() && h.Name() == "x", "%s: the hold is not in the context", method)
						w.busy(b, "x")
						return want
					})
					equal(w, method, got, want)
					w.check(!a.IsHeld("x"), "%s: still held", method)
					w.release(w.take(b, "x"))
				}
			}
		},
	},
	{
		name: "DoPanics",
		rule: "The lock does not outlive a panic of the function, which goes on to the caller.",
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			for method, do := range doers(a.Client) {
				func() {
					defer func() { equal(w, method+" panicked with", recover(), any("boom")) }()
					_ = do(w.Context(), "x", func(context.Context) error { panic("boom") })
				}()
				w.release(w.take(b, "x"))
			}
		},
	},
	{
		name: "DoCancelled",
		rule: "The end of Do's context ends that of the function, with its cause; the lock is kept until the function has returned.",
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			why := errors.New("shutting down")
			for method, do := range doers(a.Client) {
				ctx, cancel := context.WithCancelCause(w.Context())
				err := do(ctx, "x", func(work context.Context) error {
					cancel(why)
					w.after(work.Done(), "the function's context to end")
					equal(w, "cause", context.Cause(work), why)
					h, _ := pgmutex.FromContext(work)
					w.pass(w.h.Scale/10, "the lock is kept while the work goes on", h.Held)
					w.must(h.Heartbeat(w.Context()))
					w.busy(b, "x")
					return errWork
				})
				equal(w, method, err, errWork)
				w.release(w.take(b, "x"))
			}
		},
	},
	{
		name: "TryDoBusy",
		rule: "TryDo of a held lock fails with ErrHeld and does not run the function.",
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			h := w.take(a, "x")
			w.held(b.TryDo(w.Context(), "x", never(w)))
			w.release(h)
			w.must(b.TryDo(w.Context(), "x", func(context.Context) error { return nil }))
		},
	},
	{
		name: "InnerErrHeldComesBack",
		rule: "ErrHeld of another name, returned by the function itself, comes back unchanged and is told apart by AcquireError.Name.",
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			w.take(a, "inner")
			var inner error
			err := b.TryDo(w.Context(), "outer", func(ctx context.Context) error {
				inner = b.TryDo(ctx, "inner", never(w))
				return inner
			})
			equal(w, "error", err, inner)
			var acquire *pgmutex.AcquireError
			if !errors.As(err, &acquire) || acquire.Name != "inner" {
				w.Errorf("got %v", err)
			}
			skip := b.Singleton("outer", pgmutex.SkipIfHeld, func(context.Context) error { return inner })
			equal(w, "SkipIfHeld", skip(w.Context()), inner)
		},
	},
	{
		name: "FromContext",
		rule: "A context carries the innermost hold that it runs under, and ends with every hold around it.",
		run: func(w *world) {
			a := w.client("a")
			if h, ok := pgmutex.FromContext(w.Context()); ok || h != nil {
				w.Errorf("a hold from nowhere: %v", h)
			}
			err := a.Do(w.Context(), "outer", func(outer context.Context) error {
				return a.Do(outer, "inner", func(inner context.Context) error {
					for name, ctx := range map[string]context.Context{"outer": outer, "inner": inner} {
						h, ok := pgmutex.FromContext(ctx)
						w.check(ok && h.Name() == name, "%s: got %v", name, h)
					}
					w.must(a.Release(w.Context(), "outer"))
					w.after(inner.Done(), "the inner context to end with the outer hold")
					w.check(a.IsHeld("inner"), "the inner hold ended too")
					return nil
				})
			})
			w.must(err)
			h := w.take(a, "x")
			got, ok := pgmutex.FromContext(h.Context())
			w.check(ok && got == h, "Hold.Context carries %v", got)
		},
	},
	{
		name: "ReacquireInside",
		rule: "Asking for the name under which the context already runs is answered at once by a HeldError naming ourselves, not by a deadlock.",
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			inside := func(ctx context.Context) error {
				for method, do := range doers(a.Client) {
					held := w.held(do(ctx, "x", never(w)))
					equal(w, method+": holder", held.Holder, "a")
				}
				_, err := a.Acquire(ctx, "x")
				equal(w, "holder", w.held(err).Holder, "a")
				w.held(a.Singleton("x", pgmutex.WaitIfHeld, never(w))(ctx))
				w.must(a.Singleton("x", pgmutex.SkipIfHeld, never(w))(ctx))
				w.matches(a.Run(ctx, "x", never(w), nil), pgmutex.ErrHeld)
				_, err = b.TryAcquire(ctx, "x")
				w.held(err)
				return a.Do(ctx, "y", func(ctx context.Context) error {
					_, err := a.Acquire(ctx, "x") // two levels up
					w.held(err)
					return nil
				})
			}
			w.must(a.Do(w.Context(), "x", inside))
			h := w.take(a, "x")
			w.must(inside(h.Context()))
			w.release(h)
			again, err := a.Acquire(context.WithoutCancel(h.Context()), "x") // it has ended
			w.must(err)
			w.release(again)
		},
	},
	{
		name: "Singleton",
		rule: "A singleton runs under the lock; while that is held it skips, fails or waits, as it was made to.",
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			runs := 0
			job := func(ctx context.Context) error {
				h, ok := pgmutex.FromContext(ctx)
				w.check(ok && h.Held(), "not under the lock")
				runs++
				return errWork
			}
			skip := b.Singleton("x", pgmutex.SkipIfHeld, job)
			fail := b.Singleton("x", pgmutex.FailIfHeld, job)
			wait := b.Singleton("x", pgmutex.WaitIfHeld, job)
			for _, fn := range []func(context.Context) error{skip, fail, wait} {
				equal(w, "free", fn(w.Context()), errWork)
			}
			equal(w, "runs", runs, 3)

			h := w.take(a, "x")
			w.must(skip(w.Context()))
			w.held(fail(w.Context()))
			equal(w, "runs", runs, 3)
			waiting := start(func() error { return wait(w.Context()) })
			w.until("the singleton to wait", func() bool { return b.rec.count("Waiting") > 0 })
			w.release(h)
			equal(w, "waited", w.result(waiting, "the waiting singleton"), errWork)
			equal(w, "runs", runs, 4)
			w.release(w.take(a, "x"))

			bad := b.Singleton("", pgmutex.SkipIfHeld, never(w))
			w.check(bad(w.Context()) != nil, "a bad name was skipped")
		},
	},
	{
		name: "RunUntilNil",
		rule: "Run contends again after an error of the function, with the lock given back in between, and ends with nil when the function returns nil.",
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			runs := 0
			err := a.Run(w.Context(), "x", func(context.Context) error {
				w.busy(b, "x")
				if runs++; runs < 3 {
					return errWork
				}
				return nil
			}, &pgmutex.RunOptions{MaxPause: w.h.Scale / 50})
			w.must(err)
			equal(w, "runs", runs, 3)
			w.until("Released", func() bool { return a.rec.count("Released") == 3 })
			w.release(w.take(b, "x"))
		},
	},
	{
		name: "RunResigns",
		rule: "The end of Run's context ends it with its cause, after the function has returned and the lock was given back.",
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			why := errors.New("shutting down")
			ctx, cancel := context.WithCancelCause(w.Context())
			returned := false
			err := a.Run(ctx, "x", func(work context.Context) error {
				cancel(why)
				w.after(work.Done(), "the function's context to end")
				w.busy(b, "x")
				returned = true
				return context.Cause(work)
			}, nil)
			equal(w, "error", err, why)
			w.check(returned, "Run returned before the function")
			h := w.take(b, "x")

			ctx, cancel = context.WithCancelCause(w.Context())
			waiting := start(func() error { return a.Run(ctx, "x", never(w), nil) })
			w.until("Run to wait", func() bool { return a.rec.count("Waiting") > 0 })
			cancel(why)
			equal(w, "error while waiting", w.result(waiting, "Run to end"), why)
			w.release(h)
		},
	},
	{
		name: "RunGivesUpOnMistakes",
		rule: "Run returns at once what trying again cannot change.",
		run: func(w *world) {
			a := w.client("a")
			w.check(a.Run(w.Context(), "", never(w), nil) != nil, "an empty name was accepted")
			err := a.Run(w.Context(), "x", never(w), &pgmutex.RunOptions{MaxPause: -time.Second})
			w.check(err != nil && mentions(err, "MaxPause"), "negative MaxPause: %v", err)
		},
	},
	{
		name: "Ports",
		rule: "Code that knows only the ports can take locks and give everything back.",
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			var m pgmutex.Manager = a.Client
			w.must(m.Do(w.Context(), "x", func(context.Context) error {
				w.check(m.IsHeld("x") && m.HeldCount() == 1, "not held")
				n, err := m.ReleaseAll(w.Context())
				w.check(n == 1 && err == nil, "ReleaseAll: %d, %v", n, err)
				w.release(w.take(b, "x"))
				return nil
			}))
			w.matches(m.Release(w.Context(), "x"), pgmutex.ErrNotHeld)
		},
	},
}

// doers are the methods that run a function under a lock.
func doers(c *pgmutex.Client) map[string]func(context.Context, string, func(context.Context) error) error {
	return map[string]func(context.Context, string, func(context.Context) error) error{
		"Do":    c.Do,
		"TryDo": c.TryDo,
	}
}
