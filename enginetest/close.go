package enginetest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"strings"
	"sync/atomic"

	"github.com/pgmutex/pgmutex"
)

var closeTests = []test{
	{
		name: "CloseWaitsForTheWork",
		rule: "Close tells the work to stop, refuses new acquisitions, goes on renewing, waits until the work has stopped, and then releases.",
		run: func(w *world) {
			a, b := w.mortal("a"), w.client("b")
			working, stop := make(chan struct{}), make(chan struct{})
			var cause error
			work := start(func() error {
				return a.Do(w.Context(), "x", func(ctx context.Context) error {
					close(working)
					<-ctx.Done()
					cause = context.Cause(ctx)
					<-stop
					return errWork
				})
			})
			w.after(working, "the work to start")
			h := w.take(a, "handle")
			closing := start(func() error { return a.Close(w.Context()) })
			w.after(h.Context().Done(), "the hold's context to end")
			w.matches(context.Cause(h.Context()), pgmutex.ErrClosed)
			w.differs(context.Cause(h.Context()), pgmutex.ErrLost)

			for method, err := range w.allRefused(a) {
				w.matches(err, pgmutex.ErrClosed)
				w.differs(err, pgmutex.ErrHeld, pgmutex.ErrUnknown)
				w.check(!isOver(closing.done), "Close has returned before %s", method)
			}
			w.pass(2*w.h.Scale, "what is at work is renewed, and Close waits for it", func() bool {
				return h.Held() && h.Err() == nil && a.IsHeld("x") && !isOver(closing.done)
			})
			w.busy(b, "x")
			w.busy(b, "handle")
			w.release(h)
			w.check(!isOver(closing.done), "Close has returned while there is work")
			close(stop)
			equal(w, "Do", w.result(work, "the work to stop"), errWork)
			w.matches(cause, pgmutex.ErrClosed)
			w.must(w.result(closing, "Close"))
			w.release(w.take(b, "x"))
			w.release(w.take(b, "handle"))
			w.must(a.Close(w.Context()))
		},
	},
	{
		name: "CloseEndsWaits",
		rule: "Close ends every wait with ErrClosed, and leaves nothing in the line.",
		run: func(w *world) {
			a, b, c := w.client("a"), w.client("b"), w.client("c")
			h := w.take(a, "x")
			waiter := w.waiting(w.Context(), b, "x")
			local := acquiring(w.Context(), b.Client, "x")
			running := start(func() error { return b.Run(w.Context(), "x", never(w), nil) })
			behind := w.waiting(w.Context(), c, "x")
			w.must(b.Close(w.Context()))
			for _, call := range []*call{waiter, local, running} {
				err := w.result(call, "the wait to end")
				w.matches(err, pgmutex.ErrClosed)
				w.differs(err, pgmutex.ErrHeld, pgmutex.ErrUnknown)
			}
			w.release(h)
			w.release(w.granted(behind, "c"))
		},
	},
	{
		name: "CloseGivesUp",
		rule: "What is still at work when Close's context ends ends then, is named in the error, and is left to go stale; the second call is nil.",
		run: func(w *world) {
			a, b := w.mortal("a"), w.client("b")
			h := w.take(a, "at work")
			idle := w.take(a, "idle")
			w.must(idle.Release(ended()))
			err := a.Close(ended())
			w.check(err != nil && mentions(err, "at work") && !mentions(err, "idle"), "Close: %v", err)
			w.matches(err, context.Canceled)
			w.check(!h.Held(), "the hold goes on")
			w.check(isOver(h.Context().Done()), "its context goes on")
			w.matches(h.Err(), pgmutex.ErrClosed)
			w.differs(h.Err(), pgmutex.ErrLost)
			w.matches(h.Release(w.Context()), pgmutex.ErrClosed)
			w.release(w.take(b, "idle"))
			if w.can(Durable) {
				w.busy(b, "at work") // the work may go on for a moment
			}
			got, err := b.Acquire(w.Context(), "at work")
			w.must(err)
			w.release(got)
			w.must(a.Close(w.Context()))
			w.must(a.Close(ended()))
		},
	},
	{
		name: "CloseWithNothingToDo",
		rule: "Close of a client without holds succeeds whatever its context, used or not, and any number of times, also at once.",
		run: func(w *world) {
			used := w.client("used")
			w.release(w.take(used, "x"))
			w.must(used.Close(ended()))
			w.must(w.client("unused").Close(ended()))
			w.must(w.clientWith("lazy", pgmutex.Options{Lazy: true}).Close(w.Context()))
			many := w.client("many")
			w.take(many, "y")
			var calls []*call
			for range 4 {
				calls = append(calls, start(func() error { return many.Close(w.Context()) }))
			}
			_, err := many.ReleaseAll(w.Context())
			w.must(err)
			for _, c := range calls {
				w.must(w.result(c, "Close"))
			}
		},
	},
	{
		name: "AfterClose",
		rule: "A closed client holds nothing, answers ErrClosed to everything that would need the store, and still answers what does not.",
		run: func(w *world) {
			a := w.client("a")
			h := w.take(a, "x")
			w.release(h)
			w.must(a.Close(w.Context()))
			for method, err := range w.allRefused(a) {
				w.matches(err, pgmutex.ErrClosed)
				w.differs(err, pgmutex.ErrHeld)
				_ = method
			}
			w.must(h.Release(w.Context()))
			w.matches(a.Release(w.Context(), "x"), pgmutex.ErrNotHeld)
			n, err := a.ReleaseAll(w.Context())
			w.check(n == 0 && err == nil && a.HeldCount() == 0 && !a.IsHeld("x"), "it holds something: %d, %v", n, err)
			equal(w, "holder", a.HolderID(), "a")
			if w.can(Inspect) {
				_, err := a.Inspect(w.Context(), "x")
				w.matches(err, pgmutex.ErrClosed)
				for _, err := range a.List(w.Context()) {
					w.matches(err, pgmutex.ErrClosed)
				}
			}
		},
	},
	{
		name: "CloseJoinsEverything",
		rule: "No goroutine of a client is left when Close has returned.",
		run: func(w *world) {
			b := w.client("b")
			rival := w.take(b, "busy")
			// Lazy, so that all that the client starts is started under the label.
			a := w.clientWith("a", pgmutex.Options{Lazy: true, StaleAfter: w.h.Scale})
			left := labelled(func() {
				h := w.take(a, "x")
				w.must(h.Heartbeat(w.Context()))
				ctx, cancel := context.WithCancel(w.Context())
				waiter := w.waiting(ctx, a, "busy")
				cancel()
				w.held(w.result(waiter, "the wait to end"))
				w.waiting(w.Context(), a, "busy")
				w.take(a, "left behind")
				w.release(h)
				w.check(a.Close(ended()) != nil, "Close did not name what was left behind")
			})
			w.until("the client's goroutines to end", func() bool { return left() == "" })
			w.release(rival)
		},
	},
}

// allRefused makes every kind of acquisition.
func (w *world) allRefused(c *client) map[string]error {
	_, acquire := c.Acquire(w.Context(), "another")
	_, try := c.TryAcquire(w.Context(), "another")
	return map[string]error{
		"Acquire":    acquire,
		"TryAcquire": try,
		"Do":         c.Do(w.Context(), "another", never(w)),
		"TryDo":      c.TryDo(w.Context(), "another", never(w)),
		"Singleton":  c.Singleton("another", pgmutex.SkipIfHeld, never(w))(w.Context()),
		"Run":        c.Run(w.Context(), "another", never(w), nil),
	}
}

var labels atomic.Int64

// labelled runs fn, and returns a function that returns the stacks of those
// goroutines that were started by it, directly or not, and still run. Other
// cases may run at the same time.
func labelled(fn func()) (left func() string) {
	label := fmt.Sprint(labels.Add(1))
	pprof.Do(context.Background(), pprof.Labels("enginetest", label), func(context.Context) { fn() })
	return func() string {
		var profile bytes.Buffer
		_ = pprof.Lookup("goroutine").WriteTo(&profile, 1)
		var found strings.Builder
		for _, block := range strings.Split(profile.String(), "\n\n") {
			s := bufio.NewScanner(strings.NewReader(block))
			for s.Scan() {
				if line := s.Text(); strings.HasPrefix(line, "# labels:") && strings.Contains(line, fmt.Sprintf("%q:%q", "enginetest", label)) {
					found.WriteString(block + "\n")
				}
			}
		}
		return found.String()
	}
}
