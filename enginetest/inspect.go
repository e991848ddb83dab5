package enginetest

import (
	"context"
	"errors"

	"github.com/pgmutex/pgmutex"
)

var inspectTests = []test{
	{
		name:  "Inspect",
		rule:  "Anybody can see who holds a lock, since when, with what promise and who waits, by the store's clock.",
		needs: Inspect,
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			status := w.inspect(b, "x")
			equal(w, "state", status.State, pgmutex.StateFree)
			equal(w, "name", status.Name, "x")
			equal(w, "id", status.ID, pgmutex.AdvisoryID("x"))
			w.check(status.Holder == "" && status.Term == "" && status.Since.IsZero(), "a free lock shows a holder: %+v", status)

			h := w.take(a, "x")
			info := h.Info()
			for _, c := range []*client{a, b} {
				status = w.inspect(c, "x")
				equal(w, "state", status.State, pgmutex.StateHeld)
				equal(w, "name", status.Name, "x")
				equal(w, "id", status.ID, info.ID)
				equal(w, "engine", status.Engine, info.Engine)
				equal(w, "holder", status.Holder, "a")
				equal(w, "term", status.Term, info.Term)
				equal(w, "shared", status.Shared, false)
				w.check(status.Since.Equal(info.AcquiredAt), "since %v, acquired at %v", status.Since, info.AcquiredAt)
				w.check(status.Token == 0 || status.Token == info.Token, "token %d, want %d", status.Token, info.Token)
				w.check(status.HeartbeatAge >= 0 && status.Remaining > 0, "age %v, remaining %v", status.HeartbeatAge, status.Remaining)
				w.check(status.StaleAfter > status.AlertAfter && status.AlertAfter > status.Heartbeat && status.Heartbeat > 0,
					"heartbeat %v, alert %v, stale %v", status.Heartbeat, status.AlertAfter, status.StaleAfter)
				w.check(!status.StopAsked, "asked to stop")
			}
			w.release(h)
			equal(w, "state", w.inspect(b, "x").State, pgmutex.StateFree)
		},
	},
	{
		name:  "InspectFails",
		rule:  "Looking fails with the context that ended, and with a bad name, and is no answer then.",
		needs: Inspect,
		run: func(w *world) {
			a := w.client("a")
			_, err := a.Inspect(w.Context(), "")
			w.check(err != nil, "an empty name was inspected")
			_, err = a.Inspect(ended(), "x")
			w.check(err != nil, "Inspect with a context that has ended succeeded")
			w.matches(err, context.Canceled)
			for _, err := range a.List(ended()) {
				w.matches(err, context.Canceled)
				w.check(err != nil, "List with a context that has ended yielded a lock")
			}
		},
	},
	{
		name:  "List",
		rule:  "List shows every held lock with its holder, by name, and can be left at any time.",
		needs: Inspect,
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			equal(w, "empty store", names(w, a), "")
			c := w.take(b, "c")
			w.take(a, "b")
			w.take(a, "a")
			for s, err := range b.List(w.Context()) {
				w.must(err)
				want := "a"
				if s.Name == "c" {
					want = "b"
				}
				equal(w, "holder of "+s.Name, s.Holder, want)
				equal(w, "state of "+s.Name, s.State, pgmutex.StateHeld)
				equal(w, "id of "+s.Name, s.ID, pgmutex.AdvisoryID(s.Name))
				equal(w, "term of "+s.Name, s.Term, w.inspect(a, s.Name).Term)
			}
			equal(w, "locks", names(w, a), "a b c")
			for range a.List(w.Context()) {
				break
			}
			w.release(c)
			equal(w, "locks", names(w, b), "a b")
		},
	},
	{
		name:  "Waiters",
		rule:  "Who waits is counted, until they are served or give up.",
		needs: Inspect | Queue,
		run: func(w *world) {
			a, b, c := w.client("a"), w.client("b"), w.client("c")
			h := w.take(a, "x")
			first := w.waiting(w.Context(), b, "x")
			ctx, cancel := context.WithCancel(w.Context())
			second := w.waiting(ctx, c, "x")
			w.until("two waiters to be seen", func() bool { return w.inspect(a, "x").Waiters == 2 })
			cancel()
			w.held(w.result(second, "c to give up"))
			w.until("one waiter to be seen", func() bool { return w.inspect(a, "x").Waiters == 1 })
			w.release(h)
			w.release(w.granted(first, "b"))
			w.until("no waiter to be seen", func() bool { return w.inspect(a, "x").Waiters == 0 })
		},
	},
	{
		name:  "LateAndStale",
		rule:  "A silent holder is shown as late after its AlertAfter, and as stale, with no time left, after its StaleAfter.",
		needs: Inspect | Durable | canKill,
		run: func(w *world) {
			a, b := w.mortal("a"), w.client("b")
			w.take(a, "x")
			w.h.Faulter.Kill(w.T, a.Client)
			var seen []pgmutex.State
			w.until("the lock to be stale", func() bool {
				s := w.inspect(b, "x")
				if len(seen) == 0 || seen[len(seen)-1] != s.State {
					seen = append(seen, s.State)
				}
				switch s.State {
				case pgmutex.StateHeld:
					w.check(s.HeartbeatAge <= s.AlertAfter, "held after a silence of %v", s.HeartbeatAge)
				case pgmutex.StateLate:
					w.check(s.HeartbeatAge >= s.AlertAfter && s.Remaining >= 0, "late after %v, %v left", s.HeartbeatAge, s.Remaining)
				case pgmutex.StateStale:
					w.check(s.HeartbeatAge >= s.StaleAfter && s.Remaining == 0, "stale after %v, %v left", s.HeartbeatAge, s.Remaining)
				}
				return s.State == pgmutex.StateStale
			})
			w.check(seen[0] != pgmutex.StateFree, "states %v", seen)
			w.release(w.take(b, "x"))
		},
	},
	{
		name:  "History",
		rule:  "Ended holds are remembered with who held them, when and how they ended, the newest first.",
		needs: History,
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			first := w.take(a, "x")
			w.release(first)
			second := w.take(b, "x")
			w.release(second)
			w.release(w.take(b, "y"))
			past := w.history(a, "x")
			if len(past) != 2 {
				w.Fatalf("%d holds, want 2: %+v", len(past), past)
			}
			for i, h := range []*pgmutex.Hold{second, first} {
				equal(w, "name", past[i].Name, "x")
				equal(w, "holder", past[i].Holder, h.Info().Holder)
				equal(w, "term", past[i].Term, h.Info().Term)
				equal(w, "end", past[i].End, pgmutex.EndReleased)
				w.check(past[i].Token == 0 || past[i].Token == h.Token(), "token %d, want %d", past[i].Token, h.Token())
				w.check(past[i].AcquiredAt.Equal(h.Info().AcquiredAt), "acquired at %v, want %v", past[i].AcquiredAt, h.Info().AcquiredAt)
				w.check(!past[i].EndedAt.Before(past[i].AcquiredAt), "ended %v, acquired %v", past[i].EndedAt, past[i].AcquiredAt)
			}
			equal(w, "holds of all names", len(w.history(b, "")), 3)
			equal(w, "holds of another name", len(w.history(b, "z")), 0)
			for range a.History(w.Context(), "") {
				break
			}
		},
	},
	{
		name:  "HistoryOfATakeover",
		rule:  "A hold that was taken over is remembered as that, and by whom.",
		needs: History | Durable | canKill,
		run: func(w *world) {
			a, b := w.mortal("a"), w.client("b")
			old := w.take(a, "x")
			w.h.Faulter.Kill(w.T, a.Client)
			_, err := b.Acquire(w.Context(), "x")
			w.must(err)
			past := w.history(b, "x")
			if len(past) != 1 {
				w.Fatalf("%d holds, want 1: %+v", len(past), past)
			}
			equal(w, "end", past[0].End, pgmutex.EndTakenOver)
			equal(w, "term", past[0].Term, old.Info().Term)
			equal(w, "holder", past[0].Holder, "a")
			equal(w, "by", past[0].By, "b")
		},
	},
	{
		name:  "NoInspect",
		rule:  "An engine that cannot look at its store says so.",
		lacks: Inspect | Presence,
		run: func(w *world) {
			a := w.client("a")
			_, err := a.Inspect(w.Context(), "x")
			w.matches(err, errors.ErrUnsupported)
			n := 0
			for _, err := range a.List(w.Context()) {
				w.matches(err, errors.ErrUnsupported)
				n++
			}
			equal(w, "yields", n, 1)
		},
	},
	{
		name:  "NoHistory",
		rule:  "An engine that keeps no history says so.",
		lacks: History,
		run: func(w *world) {
			n := 0
			for _, err := range w.client("a").History(w.Context(), "") {
				w.matches(err, errors.ErrUnsupported)
				n++
			}
			equal(w, "yields", n, 1)
		},
	},
}

func (w *world) inspect(c *client, name string) pgmutex.Status {
	w.Helper()
	status, err := c.Inspect(w.Context(), name)
	w.must(err)
	return status
}

func (w *world) history(c *client, name string) []pgmutex.PastHold {
	w.Helper()
	var past []pgmutex.PastHold
	for p, err := range c.History(w.Context(), name) {
		w.must(err)
		past = append(past, p)
	}
	return past
}
