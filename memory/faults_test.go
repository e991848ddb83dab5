package memory_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/memory"
)

// within asks with a context that ends after d.
func (p *proc) within(d time.Duration, req engine.Request) engine.Answer {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return p.Acquire(ctx, []engine.Request{req})[0]
}

func (p *proc) unknown(a engine.Answer) {
	p.t.Helper()
	if a.Outcome != engine.Unknown || a.Err == nil || a.Token != 0 {
		p.t.Fatalf("%s: not unknown: %+v", p.label, a)
	}
}

func TestPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		a, b := open(t, s, "a"), open(t, s, "b")
		term := a.hold("x")
		s.SetFaults("a", memory.Faults{Partitioned: true})
		start := time.Now()
		answer := a.within(5*time.Second, a.request("y"))
		a.unknown(answer)
		equal(t, "cause", answer.Err, context.DeadlineExceeded)
		equal(t, "blocked", time.Since(start), 5*time.Second)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		equal(t, "renewal", a.Renew(ctx, []engine.Term{term})[0].Health, engine.Unclear)
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		equal(t, "release", a.Release(ctx, []engine.Term{term})[0].Outcome, engine.Unconfirmed)
		if err := a.Engine.(engine.Guarder).Guard(ctx, term, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("guard: %v", err)
		}

		// Nothing has arrived, nor ever will, and others are not affected.
		b.busy(b.try("x"))
		b.granted(b.try("y"))
		s.SetFaults("a", memory.Faults{})
		time.Sleep(time.Minute)
		equal(t, "renewal", a.renew(term).Health, engine.Held)
		same(t, "hints", a.sink.take(), "") // look at everything again
	})
}

func TestPartitionHeals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		p := open(t, s, "p")
		s.SetFaults("", memory.Faults{Partitioned: true})
		start := time.Now()
		time.AfterFunc(time.Minute, func() { s.SetFaults("", memory.Faults{}) })
		p.granted(p.try("x"))
		equal(t, "blocked", time.Since(start), time.Minute)
	})
}

func TestPartitionDuringTheReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		a, b := open(t, s, "a"), open(t, s, "b")
		s.SetFaults("a", memory.Faults{ReplyDelay: 2 * time.Second})
		time.AfterFunc(time.Second, func() { s.SetFaults("a", memory.Faults{Partitioned: true}) })
		a.unknown(a.within(time.Minute, a.request("x")))
		b.busy(b.try("x")) // it was executed
	})
}

func TestPartitionLosesHintsAndLosses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		a, b := open(t, s, "a"), open(t, s, "b")
		term := a.hold("x")
		b.wait("x")
		s.SetFaults("", memory.Faults{Partitioned: true})
		s.Lose("x", engine.LostRowGone)
		same(t, "hints", b.sink.take())
		same(t, "losses", a.sink.losses())
		s.SetFaults("", memory.Faults{})
		same(t, "hints", b.sink.take(), "")
		equal(t, "renewal", a.renew(term).Health, engine.Gone)
	})
}

func TestDropReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		a, b := open(t, s, "a"), open(t, s, "b")
		s.SetFaults("a", memory.Faults{DropReplies: true})
		ghost := a.request("x")
		a.unknown(a.ask(ghost))
		b.busy(b.try("x"))
		time.Sleep(stale)
		equal(t, "renewal", a.renew(ghost.Term).Health, engine.Unclear)
		time.Sleep(time.Second)
		b.busy(b.try("x")) // the renewal was executed
		equal(t, "release", a.release(ghost.Term).Outcome, engine.Unconfirmed)
		b.granted(b.try("x"))
	})
}

func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		a, b := open(t, s, "a"), open(t, s, "b")
		s.SetFaults("a", memory.Faults{Delay: 3 * time.Second, ReplyDelay: 4 * time.Second})
		start := time.Now()
		got := a.granted(a.try("x"))
		equal(t, "took", time.Since(start), 7*time.Second)
		equal(t, "arrived", got.AcquiredAt.Sub(start), 3*time.Second)

		// A request whose sender has given up arrives all the same.
		ghost := a.request("y")
		a.unknown(a.within(time.Second, ghost))
		equal(t, "state on the way", b.inspect("y").State, engine.StateFree)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		equal(t, "holder after arrival", b.inspect("y").Term, ghost.Term.ID)

		// A shorter delay speeds up what is on its way.
		start = time.Now()
		time.AfterFunc(time.Second, func() { s.SetFaults("a", memory.Faults{}) })
		a.granted(a.try("z"))
		equal(t, "took", time.Since(start), time.Second)
	})
}

func TestDelayedRequestsDieWithTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		a, b := open(t, s, "a"), open(t, s, "b")
		s.SetFaults("a", memory.Faults{Delay: time.Minute})
		a.unknown(a.within(time.Second, a.request("x")))
		done := make(chan engine.Answer)
		go func() { done <- a.try("x") }()
		synctest.Wait()
		if err := a.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.unknown(<-done) // a call under way is ended
		time.Sleep(time.Hour)
		equal(t, "state", b.inspect("x").State, engine.StateFree)
	})
}

func TestFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		p := open(t, s, "p")
		term := p.hold("held")
		boom := errors.New("boom")
		s.SetFaults("p", memory.Faults{Fail: boom})
		if a := p.try("x"); a.Outcome != engine.Failed || a.Err != boom {
			t.Errorf("acquire: %+v", a)
		}
		equal(t, "renewal", p.renew(term), engine.Standing{Err: boom})
		equal(t, "explanation", p.explain(term), engine.Standing{Err: boom})
		equal(t, "release", p.release(term), engine.Removal{Err: boom})
		equal(t, "leave", p.Engine.(engine.Queuer).Leave(t.Context(), []string{"x"}), boom)
		for _, err := range p.Engine.(engine.Inspector).List(t.Context()) {
			equal(t, "list", err, boom)
		}
		for _, refusal := range []error{fs.ErrPermission, errors.ErrUnsupported} {
			s.SetFaults("p", memory.Faults{Fail: fmt.Errorf("no: %w", refusal)})
			equal(t, "outcome", p.try("x").Outcome, engine.Refused)
		}
		s.SetFaults("p", memory.Faults{})
		equal(t, "state", p.inspect("x").State, engine.StateFree)
		equal(t, "renewal", p.renew(term).Health, engine.Held)
	})
}

func TestFailedStartMayBeRepeated(t *testing.T) {
	s := memory.New()
	boom := errors.New("boom")
	s.SetFaults("", memory.Faults{Fail: boom})
	eng := s.Engine()
	if err := eng.Start(t.Context(), &sink{}); err != boom {
		t.Errorf("start: %v", err)
	}
	s.SetFaults("", memory.Faults{})
	if err := eng.Start(t.Context(), &sink{}); err != nil {
		t.Errorf("start: %v", err)
	}
	if err := eng.Close(t.Context()); err != nil {
		t.Errorf("close: %v", err)
	}
}

func TestNoHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		a, b := open(t, s, "a"), open(t, s, "b")
		term := a.hold("x")
		s.SetFaults("b", memory.Faults{NoHints: true})
		if got := b.busy(b.wait("x")); got.Hinted || got.Place != 1 {
			t.Errorf("%+v", got)
		}
		a.release(term)
		same(t, "hints", b.sink.take())
		b.granted(b.wait("x"))
	})
}

func TestTheLatestFaultsCount(t *testing.T) {
	s := memory.New()
	a, b := open(t, s, "a"), open(t, s, "b")
	boom := errors.New("boom")
	s.SetFaults("", memory.Faults{Fail: boom})
	s.SetFaults("a", memory.Faults{})
	equal(t, "a", a.try("x").Outcome, engine.Granted)
	equal(t, "b", b.try("y").Outcome, engine.Failed)
	s.SetFaults("", memory.Faults{Fail: boom})
	equal(t, "a", a.try("z").Outcome, engine.Failed)
}
