package enginetest

import (
	"errors"

	"github.com/pgmutex/pgmutex"
)

var sharedTests = []test{
	{
		name:  "SharedAndExclusive",
		rule:  "Any number of shared holds of a name go together, of one client and of many; each excludes exclusive ones and is excluded by them.",
		needs: Shared,
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			readA, readB := w.reader(a), w.reader(b)
			first := w.take(readA, "x")
			equal(w, "Info.Shared", first.Info().Shared, true)
			second := w.take(readB, "x")
			third := w.take(readA, "x")
			equal(w, "holds of a", a.HeldCount(), 2)
			w.busy(a, "x")
			w.busy(b, "x")
			w.release(first)
			w.release(second)
			w.busy(b, "x")
			w.release(third)

			exclusive := w.take(b, "x")
			equal(w, "Info.Shared", exclusive.Info().Shared, false)
			w.busy(readA, "x")
			w.busy(readB, "x")
			w.release(exclusive)
			w.release(w.take(readA, "x"))
		},
	},
	{
		name:  "SharedHoldsEndApart",
		rule:  "A shared hold ends alone; Client.Release ends all that this client has of the name, and no other client's.",
		needs: Shared,
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			readA, readB := w.reader(a), w.reader(b)
			one, two, other := w.take(readA, "x"), w.take(readA, "x"), w.take(readB, "x")
			w.check(one.Info().Term != two.Info().Term, "two holds with the term %q", one.Info().Term)
			w.release(one)
			w.must(two.Heartbeat(w.Context()))
			three := w.take(readA, "x")
			w.must(a.Release(w.Context(), "x"))
			w.check(!two.Held() && !three.Held() && !a.IsHeld("x"), "a still holds it")
			w.must(other.Heartbeat(w.Context()))
			w.busy(a, "x")
			w.release(other)
			w.release(w.take(a, "x"))
		},
	},
	{
		name:  "SharedWaiters",
		rule:  "The release of an exclusive hold lets in all the readers that wait, and the last reader's lets in the writer.",
		needs: Shared,
		run: func(w *world) {
			a, b, c := w.client("a"), w.client("b"), w.client("c")
			h := w.take(a, "x")
			first := w.waiting(w.Context(), w.reader(b), "x")
			second := w.waiting(w.Context(), w.reader(c), "x")
			w.release(h)
			one, two := w.granted(first, "b"), w.granted(second, "c")
			w.check(one.Held() && two.Held(), "they do not go together")
			writer := w.waiting(w.Context(), a, "x")
			w.release(one)
			w.check(!isOver(writer.done), "a writer beside a reader")
			w.release(two)
			w.release(w.granted(writer, "a"))
		},
	},
	{
		name:  "SharedInside",
		rule:  "A shared acquisition inside a shared hold of the name is granted; every other one inside a hold of the name is answered at once.",
		needs: Shared,
		run: func(w *world) {
			a := w.client("a")
			reader := w.reader(a)
			h := w.take(reader, "x")
			inner, err := reader.TryAcquire(h.Context(), "x")
			w.must(err)
			_, err = a.Acquire(inner.Context(), "x")
			w.held(err)
			w.release(inner)
			w.release(h)
			h = w.take(a, "x")
			_, err = reader.Acquire(h.Context(), "x")
			w.held(err)
		},
	},
	{
		name:  "SharedTakeover",
		rule:  "A writer takes over once every reader is gone or stale, and not before.",
		needs: Shared | Durable | canKill,
		run: func(w *world) {
			a, b, c := w.mortal("a"), w.client("b"), w.client("c")
			dead, alive := w.take(w.reader(a), "x"), w.take(w.reader(b), "x")
			w.h.Faulter.Kill(w.T, a.Client)
			writer := w.waiting(w.Context(), c, "x")
			w.pass(2*w.h.Scale, "a reader that lives keeps the writer out", func() bool { return !isOver(writer.done) && alive.Held() })
			w.lost(dead)
			w.release(alive)
			h := w.granted(writer, "the writer")
			w.check(h.Token() > dead.Token() || !w.can(Tokens), "token %d after %d", h.Token(), dead.Token())
		},
	},
	{
		name:  "SharedIsShown",
		rule:  "Shared holds are shown as such, each with its holder.",
		needs: Shared | Inspect,
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			w.take(w.reader(a), "x")
			w.take(w.reader(b), "x")
			status := w.inspect(b, "x")
			w.check(status.Shared && status.State == pgmutex.StateHeld, "status %+v", status)
			holders := map[string]bool{}
			for s, err := range a.List(w.Context()) {
				w.must(err)
				w.check(s.Shared, "%s's hold is not shown as shared", s.Holder)
				holders[s.Holder] = true
			}
			w.check(holders["a"] && holders["b"], "holders %v", holders)
		},
	},
	{
		name:  "NoShared",
		rule:  "An engine without read locks refuses them, rather than to give out another kind of lock.",
		lacks: Shared,
		run: func(w *world) {
			a := w.client("a")
			reader := w.reader(a)
			_, try := reader.TryAcquire(w.Context(), "x")
			_, acquire := reader.Acquire(w.Context(), "x")
			for _, err := range []error{try, acquire, reader.Do(w.Context(), "x", never(w)), reader.Run(w.Context(), "x", never(w), nil)} {
				w.matches(err, errors.ErrUnsupported)
				w.differs(err, pgmutex.ErrHeld, pgmutex.ErrUnknown)
			}
			w.release(w.take(a, "x"))
		},
	},
}

// reader is the client, taking read locks.
func (w *world) reader(c *client) *client {
	return &client{c.With(pgmutex.AcquireOptions{Shared: true}), c.rec}
}
