package enginetest

import (
	"errors"

	"github.com/pgmutex/pgmutex"
)

var presenceTests = []test{
	{
		name:  "PresenceIsShown",
		rule:  "Anybody can see that a lock is held and in which mode; its holder sees everything about it.",
		needs: Presence,
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			status := w.inspect(b, "x")
			equal(w, "state", status.State, pgmutex.StateFree)
			equal(w, "name", status.Name, "x")
			equal(w, "id", status.ID, pgmutex.AdvisoryID("x"))
			w.check(status.Holder == "" && status.Term == "" && status.Since.IsZero(), "a free lock shows a holder: %+v", status)

			h := w.take(a, "x")
			for _, c := range []*client{a, b} {
				status = w.inspect(c, "x")
				equal(w, "state", status.State, pgmutex.StateHeld)
				equal(w, "name", status.Name, "x")
				equal(w, "id", status.ID, pgmutex.AdvisoryID("x"))
				equal(w, "engine", status.Engine, h.Info().Engine)
				equal(w, "shared", status.Shared, false)
				w.check(status.Term != "", "nothing names the hold")
				w.check(!status.StopAsked, "asked to stop")
			}
			own := w.inspect(a, "x")
			equal(w, "holder", own.Holder, "a")
			equal(w, "term", own.Term, h.Info().Term)
			w.check(own.Since.Equal(h.Info().AcquiredAt), "since %v, acquired at %v", own.Since, h.Info().AcquiredAt)

			w.take(w.reader(b), "y")
			equal(w, "locks as a sees them", w.ids(a), 2)
			w.check(w.inspect(a, "y").Shared, "a read lock is not shown as such")
			w.release(h)
			equal(w, "state", w.inspect(b, "x").State, pgmutex.StateFree)
			equal(w, "locks as b sees them", w.ids(b), 1)
		},
	},
	{
		name:  "PresenceIsAimedAt",
		rule:  "A forced release ends the session that was shown, and no other: ErrNotHeld when the lock is free, ErrHeld when another session has it, refused for what this client holds itself.",
		needs: Presence | Force,
		run: func(w *world) {
			a, b, c := w.client("a"), w.client("b"), w.client("c")
			h := w.take(a, "x")
			seen := w.inspect(b, "x")
			w.release(h)
			w.matches(b.ForceRelease(w.Context(), seen, now), pgmutex.ErrNotHeld)

			next := w.take(c, "x")
			err := b.ForceRelease(w.Context(), seen, now)
			w.matches(err, pgmutex.ErrHeld)
			w.differs(err, pgmutex.ErrNotHeld)
			w.must(next.Heartbeat(w.Context()))

			if !w.can(Ask) {
				w.matches(b.ForceRelease(w.Context(), w.inspect(b, "x"), nil), errors.ErrUnsupported)
			}
			w.matches(c.ForceRelease(w.Context(), w.inspect(c, "x"), now), errors.ErrUnsupported)
			w.must(next.Heartbeat(w.Context()))

			waiter := w.waiting(w.Context(), a, "x")
			w.must(b.ForceRelease(w.Context(), w.inspect(b, "x"), now))
			w.release(w.granted(waiter, "a"))
			lost := w.lost(next)
			equal(w, "reason", lost.Reason(), pgmutex.LostSessionEnded)
			w.release(w.take(c, "x"))
		},
	},
}

// ids counts the locks of the names that the suite uses here.
func (w *world) ids(c *client) int {
	w.Helper()
	n := 0
	for s, err := range c.List(w.Context()) {
		w.must(err)
		if s.ID == pgmutex.AdvisoryID("x") || s.ID == pgmutex.AdvisoryID("y") {
			n++
		}
	}
	return n
}
