package memory_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/memory"
)

func (p *proc) inLine(a engine.Answer, place int) {
	p.t.Helper()
	p.busy(a)
	if a.Place != place || !a.Hinted {
		p.t.Errorf("%s: place %d, hinted %v; want place %d", p.label, a.Place, a.Hinted, place)
	}
}

func TestLineOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		a, b, c, d := open(t, s, "a"), open(t, s, "b"), open(t, s, "c"), open(t, s, "d")
		term := a.hold("x")
		b.inLine(b.wait("x"), 1)
		c.inLine(c.wait("x"), 2)
		b.inLine(b.wait("x"), 1) // asking again keeps the place
		equal(t, "place of a one-shot try", d.busy(d.try("x")).Place, 0)
		equal(t, "waiters", a.inspect("x").Waiters, 2)

		a.release(term)
		same(t, "hints of b", b.sink.take(), "x")
		same(t, "hints of c", c.sink.take())
		c.inLine(c.wait("x"), 2)
		d.inLine(d.wait("x"), 3)
		term = b.request("x").Term
		req := engine.Request{Term: term, Wait: true}
		b.granted(b.ask(req))
		equal(t, "waiters", a.inspect("x").Waiters, 2)

		b.release(term)
		same(t, "hints of b", b.sink.take())
		same(t, "hints of c", c.sink.take(), "x")
		same(t, "hints of d", d.sink.take())
	})
}

func TestOfferPassesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		a, b, c := open(t, s, "a"), open(t, s, "b"), open(t, s, "c")
		term := a.hold("x")
		b.wait("x")
		c.wait("x")
		a.release(term)
		time.Sleep(time.Second - 1)
		same(t, "hints of c", c.sink.take())
		time.Sleep(1)
		same(t, "hints of c", c.sink.take(), "x")
		same(t, "hints of b", b.sink.take(), "x")
		equal(t, "waiters", a.inspect("x").Waiters, 1)

		// b was only slow: it still stands before c, until c has taken the lock.
		granted := c.request("x")
		granted.Wait = true
		c.granted(c.ask(granted))
		b.inLine(b.wait("x"), 1)
		c.release(granted.Term)
		same(t, "hints of b", b.sink.take(), "x")
		b.granted(b.wait("x"))
	})
}

func TestOnlySleepersInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		a, b := open(t, s, "a"), open(t, s, "b")
		term := a.hold("x")
		b.wait("x")
		a.release(term)
		time.Sleep(time.Minute) // b slept through its offer
		same(t, "hints of b", b.sink.take(), "x")
		term = a.request("x").Term
		a.granted(a.ask(engine.Request{Term: term, Wait: true}))
		a.release(term)
		same(t, "hints of b", b.sink.take(), "x")
	})
}

func TestBarging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		a, b := open(t, s, "a"), open(t, s, "b")
		term := a.hold("x")
		b.wait("x")
		a.release(term)
		term = a.hold("x") // a one-shot try may
		time.Sleep(time.Minute)
		b.sink.take()
		b.inLine(b.wait("x"), 1)
		a.release(term)
		same(t, "hints of b", b.sink.take(), "x")
	})
}

func TestLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		a, b, c, d := open(t, s, "a"), open(t, s, "b"), open(t, s, "c"), open(t, s, "d")
		term := a.hold("x")
		b.wait("x")
		c.wait("x")
		d.wait("x")
		a.release(term)
		if err := b.Engine.(engine.Queuer).Leave(t.Context(), []string{"x", "unknown"}); err != nil {
			t.Fatal(err)
		}
		same(t, "hints of c", c.sink.take(), "x") // at once
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		same(t, "hints of d", d.sink.take(), "x")
		d.granted(d.wait("x"))
		equal(t, "waiters", a.inspect("x").Waiters, 0)
	})
}

func TestLineAndStaleHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		a, b, c := open(t, s, "a"), open(t, s, "b"), open(t, s, "c")
		a.hold("x")
		b.wait("x") // and is never heard of again
		c.wait("x")
		time.Sleep(stale + 1)
		c.inLine(c.wait("x"), 2)
		same(t, "hints of b", b.sink.take(), "x")
		time.Sleep(time.Second)
		same(t, "hints of c", c.sink.take(), "x")
		c.granted(c.wait("x"))
	})
}

func TestNoHintLoop(t *testing.T) {
	// A head that does not dare to take a stale row must not be hinted by its own
	// attempts: hint and attempt would chase each other without time passing.
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		a, b := open(t, s, "a"), open(t, s, "b")
		a.hold("x")
		time.Sleep(stale + 1)
		req := b.request("x")
		req.Judge, req.Wait = false, true
		b.inLine(b.ask(req), 1)
		b.inLine(b.ask(req), 1)
		same(t, "hints", b.sink.take())
	})
}

func TestSharedLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		a, b, c, d := open(t, s, "a"), open(t, s, "b"), open(t, s, "c"), open(t, s, "d")
		shared := func(p *proc) engine.Answer {
			req := p.request("x")
			req.Wait, req.Term.Shared = true, true
			return p.ask(req)
		}
		term := a.hold("x")
		b.inLine(shared(b), 1)
		c.inLine(shared(c), 2)
		d.inLine(d.wait("x"), 3)
		a.release(term)
		same(t, "hints of b", b.sink.take(), "x")
		b.granted(shared(b))
		same(t, "hints of c", c.sink.take(), "x") // beside b
		c.granted(shared(c))
		same(t, "hints of d", d.sink.take())
		a.inLine(shared(a), 2) // does not pass the exclusive waiter
	})
}
