package memory_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/memory"
)

func TestLose(t *testing.T) {
	for _, c := range []struct {
		reason engine.LossReason
		by     string
		state  engine.State // left behind
		holder string
		past   []engine.End
	}{
		{engine.LostTakenOver, "somebody else", engine.StateHeld, "somebody else", []engine.End{engine.EndTakenOver}},
		{engine.LostExpired, "", engine.StateStale, "a", nil},
		{engine.LostReleased, "operator", engine.StateFree, "", []engine.End{engine.EndForced}},
		{engine.LostSessionEnded, "", engine.StateFree, "", nil},
		{engine.LostReadOnly, "", engine.StateHeld, "a", nil},
		{engine.LostRowGone, "", engine.StateFree, "", nil},
		{"some other reason", "", engine.StateFree, "", nil},
	} {
		t.Run(string(c.reason), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memory.New()
				a, b, w := open(t, s, "a"), open(t, s, "b"), open(t, s, "w")
				term := a.hold("x")
				time.Sleep(20 * time.Second)
				w.wait("x")
				equal(t, "Lose", s.Lose("x", c.reason), true)
				same(t, "losses", a.sink.losses(), fmt.Sprintf("%s %s by %q", term.ID, c.reason, c.by))

				gone := engine.Standing{Health: engine.Gone, Reason: c.reason, By: c.by}
				equal(t, "explanation", a.explain(term), gone)
				equal(t, "renewal", a.renew(term), gone)
				if err := a.Engine.(engine.Guarder).Guard(t.Context(), term, nil); !errors.Is(err, engine.ErrGone) {
					t.Errorf("guard: %v", err)
				}
				status := b.inspect("x")
				equal(t, "state", status.State, c.state)
				equal(t, "holder", status.Holder, c.holder)
				var ends []engine.End
				for _, past := range b.history("x") {
					ends = append(ends, past.End)
					equal(t, "by", past.By, c.by)
				}
				equal(t, "history", fmt.Sprint(ends), fmt.Sprint(c.past))

				// What is left behind lets the next one in when it should.
				switch c.state {
				case engine.StateHeld:
					same(t, "hints", w.sink.take())
					b.busy(b.try("x"))
					time.Sleep(stale + 1)
				default:
					same(t, "hints", w.sink.take(), "x")
				}
				b.granted(b.try("x"))
				equal(t, "explanation afterwards", a.explain(term), gone)
				same(t, "losses afterwards", a.sink.losses(), fmt.Sprintf("%s %s by %q", term.ID, c.reason, c.by))
			})
		})
	}
}

func TestLoseAgain(t *testing.T) {
	s := memory.New()
	a := open(t, s, "a")
	equal(t, "Lose of a free lock", s.Lose("x", engine.LostTakenOver), false)
	equal(t, "state", a.inspect("x").State, engine.StateFree)
	a.hold("x")
	equal(t, "Lose", s.Lose("x", engine.LostTakenOver), true)
	equal(t, "Lose of the stranger's hold", s.Lose("x", engine.LostRowGone), true)
	equal(t, "state", a.inspect("x").State, engine.StateFree)

	term := a.hold("y")
	s.Lose("y", engine.LostReadOnly)
	equal(t, "release", a.release(term).Outcome, engine.Removed)
	equal(t, "reason", a.explain(term).Reason, engine.LostReadOnly)
}

func TestLoseOfASharedLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		a, b := open(t, s, "a"), open(t, s, "b")
		for _, p := range []*proc{a, b} {
			req := p.request("x")
			req.Term.Shared = true
			p.granted(p.ask(req))
		}
		s.Lose("x", engine.LostTakenOver)
		equal(t, "losses", len(a.sink.losses())+len(b.sink.losses()), 2)
		equal(t, "holders", len(a.list()), 1)
	})
}

func TestExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		a, b := open(t, s, "a"), open(t, s, "b")
		equal(t, "Expire of a free lock", s.Expire("x"), false)
		term := a.hold("x")
		seen := b.busy(b.wait("x")).Holder
		equal(t, "Expire", s.Expire("x"), true)
		same(t, "losses", a.sink.losses())
		same(t, "hints", b.sink.take(), "x")
		req := b.request("x")
		req.Judge, req.Wait, req.Take = false, true, seen.Heartbeat
		now := b.busy(b.ask(req)).Holder
		if now.Age <= now.StaleAfter || now.Heartbeat == seen.Heartbeat {
			t.Errorf("a watching waiter cannot see it: %+v", now)
		}
		req.Take = now.Heartbeat
		b.granted(b.ask(req))
		equal(t, "renewal", a.renew(term), engine.Standing{Health: engine.Gone, Reason: engine.LostTakenOver, By: "b"})
	})
}

func TestForceRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		a, b := open(t, s, "a"), open(t, s, "b")
		force := func(seen engine.Status, now bool) error {
			return b.Engine.(engine.Forcer).ForceRelease(t.Context(), seen, engine.Force{By: "eve", Reason: "stuck", Now: now})
		}
		term := a.hold("x")
		seen := b.inspect("x")
		if err := force(seen, false); err != nil {
			t.Fatal(err)
		}
		equal(t, "asked", b.inspect("x").StopAsked, true)
		equal(t, "renewal", a.renew(term), engine.Standing{Health: engine.Held, Stop: true, StopBy: "eve"})
		same(t, "losses", a.sink.losses())
		a.release(term)
		past := b.history("x")[0]
		if past.End != engine.EndForced || past.By != "eve" || past.Reason != "stuck" {
			t.Errorf("history: %+v", past)
		}
		if err := force(seen, true); !errors.Is(err, engine.ErrGone) {
			t.Errorf("of a free lock: %v", err)
		}

		term = a.hold("x")
		if err := force(seen, true); !errors.Is(err, engine.ErrChanged) {
			t.Errorf("of a former term: %v", err)
		}
		b.wait("x")
		if err := force(b.inspect("x"), true); err != nil {
			t.Fatal(err)
		}
		same(t, "losses", a.sink.losses(), term.ID+` released by operator by "eve"`)
		same(t, "hints", b.sink.take(), "x")
		equal(t, "explanation", a.explain(term), engine.Standing{Health: engine.Gone, Reason: engine.LostReleased, By: "eve"})
		past = b.history("x")[0]
		if past.End != engine.EndForced || past.By != "eve" || past.Reason != "stuck" || past.Term != term.ID {
			t.Errorf("history: %+v", past)
		}
	})
}
