package memory_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/memory"
)

func TestExclusion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		a, b := open(t, s, "a"), open(t, s, "b")
		req := a.request("x")
		req.Details = map[string]string{"host": "h1"}
		first := a.granted(a.ask(req))
		req.Details["host"] = "changed afterwards"
		time.Sleep(3 * time.Second)
		rival := b.busy(b.try("x")).Holder
		if rival == nil || rival.Holder != "a" || rival.ID != req.Term.ID || rival.Age != 3*time.Second ||
			rival.StaleAfter != stale || rival.Interval != 10*time.Second || !rival.Since.Equal(first.AcquiredAt) ||
			rival.Heartbeat == "" || rival.Details["host"] != "h1" {
			t.Errorf("rival: %+v", rival)
		}
		a.busy(a.try("x")) // a process is no exception to itself
		b.granted(b.try("y"))
		equal(t, "release", a.release(req.Term).Outcome, engine.Removed)
		equal(t, "second release", a.release(req.Term).Outcome, engine.Absent)
		if second := b.granted(b.try("x")); second.Token <= first.Token {
			t.Errorf("token went from %d to %d", first.Token, second.Token)
		}
		equal(t, "former holder", a.renew(req.Term).Health, engine.Gone)
		equal(t, "release of a former term", a.release(req.Term).Outcome, engine.Absent)
		equal(t, "holder", a.inspect("x").Holder, "b")
	})
}

func TestExclusionUnderLoad(t *testing.T) {
	s := memory.New()
	var holders, grants atomic.Int64
	var wg sync.WaitGroup
	for i := range 8 {
		p := open(t, s, fmt.Sprint("p", i))
		wg.Go(func() {
			for range 500 {
				req := p.request("x")
				if p.ask(req).Outcome != engine.Granted {
					continue
				}
				grants.Add(1)
				if holders.Add(1) != 1 {
					t.Error("two holders")
				}
				holders.Add(-1)
				p.release(req.Term)
			}
		})
	}
	wg.Wait()
	if grants.Load() == 0 {
		t.Error("nobody was ever granted anything")
	}
}

func TestTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		a, b := open(t, s, "a"), open(t, s, "b")
		term := a.hold("x")
		time.Sleep(stale - time.Second)
		equal(t, "renewal", a.renew(term).Health, engine.Held)
		time.Sleep(stale)
		b.busy(b.try("x")) // exactly StaleAfter is not stale yet
		time.Sleep(1)
		unjudged := b.request("x")
		unjudged.Judge = false
		b.busy(b.ask(unjudged))
		got := b.granted(b.try("x"))
		if got.TookOver == nil || got.TookOver.ID != term.ID || got.TookOver.Age != stale+1 {
			t.Errorf("took over %+v", got.TookOver)
		}
		same(t, "told", a.sink.losses()) // the holder is unaware
		gone := engine.Standing{Health: engine.Gone, Reason: engine.LostTakenOver, By: "b"}
		equal(t, "renewal of a lost term", a.renew(term), gone)
		equal(t, "explanation", a.explain(term), gone)
	})
}

func TestRevivalOfAStaleHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		a, b := open(t, s, "a"), open(t, s, "b")
		term := a.hold("x")
		time.Sleep(2 * stale)
		equal(t, "explanation", a.explain(term).Health, engine.Held)
		equal(t, "state", a.inspect("x").State, engine.StateStale)
		equal(t, "renewal", a.renew(term).Health, engine.Held)
		b.busy(b.try("x"))
	})
}

func TestTheHoldersPromiseCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		a, b := open(t, s, "a"), open(t, s, "b")
		req := a.request("x")
		req.Term.StaleAfter = 3 * time.Second
		a.granted(a.ask(req))
		time.Sleep(3*time.Second + 1)
		b.granted(b.try("x"))
	})
}

func TestTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		a, b := open(t, s, "a"), open(t, s, "b")
		term := a.hold("x")
		seen := b.busy(b.try("x")).Holder.Heartbeat
		equal(t, "renewal", a.renew(term).Health, engine.Held) // in the same instant
		req := b.request("x")
		req.Judge, req.Take = false, seen
		now := b.busy(b.ask(req)).Holder.Heartbeat
		if now == seen {
			t.Fatal("a renewal did not change the heartbeat value")
		}
		req.Take = now
		if got := b.granted(b.ask(req)); got.TookOver == nil || got.TookOver.Heartbeat != now {
			t.Errorf("took over %+v", got.TookOver)
		}
	})
}

func TestOwnAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		a, b := open(t, s, "a"), open(t, s, "b")
		ghost := a.hold("x")
		foreign := b.request("x")
		foreign.Own = []string{"b~other"}
		b.busy(b.ask(foreign))
		req := a.request("x")
		req.Own = []string{ghost.ID}
		if got := a.granted(a.ask(req)); got.TookOver != nil {
			t.Errorf("own attempt is shown as taken over: %+v", got.TookOver)
		}
		equal(t, "ghost", a.renew(ghost).Health, engine.Gone)
		a.granted(a.ask(req)) // the same attempt, sent twice
		equal(t, "rows", len(a.list()), 1)
	})
}

func TestShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		a, b, c := open(t, s, "a"), open(t, s, "b"), open(t, s, "c")
		shared := func(p *proc) engine.Request {
			req := p.request("x")
			req.Term.Shared = true
			return req
		}
		ra := shared(a)
		a.granted(a.ask(ra))
		time.Sleep(10 * time.Second)
		rb := shared(b)
		b.granted(b.ask(rb))
		equal(t, "holders", len(a.list()), 2)
		equal(t, "shown", a.inspect("x").Holder, "b")

		// An exclusive contender is shown whoever lasts longest, and its watch is
		// void when any of the holders renews.
		rival := c.busy(c.try("x")).Holder
		equal(t, "rival", rival.Holder, "b")
		a.renew(ra.Term)
		req := c.request("x")
		req.Judge, req.Take = false, rival.Heartbeat
		equal(t, "rival", c.busy(c.ask(req)).Holder.Holder, "a")

		a.release(ra.Term)
		c.busy(c.try("x"))
		b.release(rb.Term)
		exclusive := c.hold("x")
		a.busy(a.ask(shared(a)))
		time.Sleep(stale + 1)
		a.granted(a.ask(shared(a)))
		equal(t, "exclusive", c.renew(exclusive).Reason, engine.LostTakenOver)
		b.granted(b.ask(shared(b)))
		time.Sleep(stale + 1)
		c.granted(c.try("x")) // over both
		equal(t, "holders", len(a.list()), 1)
	})
}

func TestRefusals(t *testing.T) {
	s := memory.New()
	p := open(t, s, "p")
	for what, spoil := range map[string]func(*engine.Term){
		"empty name":    func(t *engine.Term) { t.Name = "" },
		"long name":     func(t *engine.Term) { t.Name = strings.Repeat("é", 65) },
		"no id":         func(t *engine.Term) { t.ID = "" },
		"no StaleAfter": func(t *engine.Term) { t.StaleAfter = 0 },
	} {
		req := p.request("x")
		spoil(&req.Term)
		if a := p.ask(req); a.Outcome != engine.Refused || a.Err == nil {
			t.Errorf("%s: %+v", what, a)
		}
	}
	p.granted(p.try(strings.Repeat("é", 64)))
	equal(t, "answers to nothing", len(p.Acquire(t.Context(), nil)), 0)
}

func TestBatch(t *testing.T) {
	s := memory.New()
	a, b := open(t, s, "a"), open(t, s, "b")
	b.hold("y")
	batch := []engine.Request{a.request("x"), a.request("y"), a.request("z")}
	answers := a.Acquire(t.Context(), batch)
	terms := make([]engine.Term, len(batch))
	for i, want := range []engine.Outcome{engine.Granted, engine.Busy, engine.Granted} {
		equal(t, batch[i].Term.Name, answers[i].Outcome, want)
		terms[i] = batch[i].Term
	}
	for i, want := range []engine.Health{engine.Held, engine.Gone, engine.Held} {
		equal(t, "renewal", a.Renew(t.Context(), terms)[i].Health, want)
	}
	removals := a.Release(t.Context(), terms)
	for i, want := range []engine.RemovalOutcome{engine.Removed, engine.Absent, engine.Removed} {
		equal(t, "removal", removals[i].Outcome, want)
	}
}

func TestLifecycle(t *testing.T) {
	s := memory.New()
	ctx := t.Context()
	eng := s.Engine()
	req := engine.Request{Term: engine.Term{Name: "x", ID: "p~1", StaleAfter: stale}}
	terms := []engine.Term{req.Term}
	equal(t, "before Start", eng.Acquire(ctx, []engine.Request{req})[0].Outcome, engine.Failed)
	if err := eng.Start(ctx, &sink{}); err != nil {
		t.Fatal(err)
	}
	if eng.Start(ctx, &sink{}) == nil {
		t.Error("started twice")
	}
	equal(t, "started", eng.Acquire(ctx, []engine.Request{req})[0].Outcome, engine.Granted)
	for range 2 {
		if err := eng.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	equal(t, "acquire after Close", eng.Acquire(ctx, []engine.Request{req})[0].Outcome, engine.Refused)
	equal(t, "renew after Close", eng.Renew(ctx, terms)[0].Health, engine.Unclear)
	equal(t, "explain after Close", eng.Explain(ctx, terms)[0].Health, engine.Unclear)
	equal(t, "release after Close", eng.Release(ctx, terms)[0].Outcome, engine.Unconfirmed)
	if err := eng.Start(ctx, &sink{}); err == nil {
		t.Error("started after Close")
	}
	other := open(t, s, "q")
	other.busy(other.try("x")) // Close released nothing
}

func TestEndedContext(t *testing.T) {
	s := memory.New()
	p := open(t, s, "p")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a := p.Acquire(ctx, []engine.Request{p.request("x")})[0]
	if a.Outcome != engine.Failed || !errors.Is(a.Err, context.Canceled) {
		t.Errorf("%+v", a)
	}
	equal(t, "state", p.inspect("x").State, engine.StateFree)
}
