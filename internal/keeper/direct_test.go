package keeper

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgmutex/pgmutex/engine"
)

// sending is a fake whose lone requests can be sent: each is answered by answers,
// which the test fills, and counted.
type sending struct {
	*fake
	answers chan engine.Answer
	more    bool   // an answer needs more than it says
	refuses bool   // nothing can be sent
	rest    func() // what that takes
	open    atomic.Int64
}

func (s *sending) Send(engine.Request) engine.Sent {
	if s.refuses {
		return nil
	}
	s.open.Add(1)
	return &sentFake{s: s}
}

type sentFake struct {
	s    *sending
	a    *engine.Answer
	more bool
}

func (f *sentFake) Await(ctx context.Context) bool {
	select {
	case a := <-f.s.answers:
		f.a = &a
	case <-ctx.Done():
	}
	f.more = f.s.more
	return f.a != nil && !f.more
}

func (f *sentFake) Answer(ctx context.Context) engine.Answer {
	defer f.s.open.Add(-1)
	if f.more && f.s.rest != nil {
		f.s.rest()
	}
	if f.a != nil {
		return *f.a
	}
	select {
	case a := <-f.s.answers:
		return a
	case <-ctx.Done():
		return engine.Answer{Err: context.Cause(ctx)}
	}
}

func newSending() *sending { return &sending{fake: &fake{}, answers: make(chan engine.Answer, 8)} }

func sendingWorld(t *testing.T, s *sending) *world {
	w := newWorld(t, s.fake)
	w.engine, w.sender = s.fake, s
	return w
}

func TestALoneRequestIsAnsweredWhereItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSending()
		w := sendingWorld(t, s)
		defer w.stopNow()
		for _, s.more = range []bool{false, true} {
			s.answers <- engine.Answer{Outcome: engine.Granted, Token: 7}
			l := w.mustTry(t, "x", nil)
			if l.Term().Token != 7 {
				t.Errorf("token %d", l.Term().Token)
			}
			l.Release(t.Context())
			s.answers <- busy(rival("1", 0))
			if res := w.Try(t.Context(), ask("x", nil)); !res.Busy {
				t.Errorf("got %+v", res)
			}
		}
		if n, _, _ := s.counts(); n != 0 || s.open.Load() != 0 {
			t.Errorf("%d requests in batches, %d open", n, s.open.Load())
		}
		s.refuses = true
		w.mustTry(t, "x", nil)
		if n, _, _ := s.counts(); n != 1 {
			t.Errorf("what could not be sent was asked %d times", n)
		}
	})
}

// The trust counts from before the request was sent, not from its answer.
func TestASentRequestIsTrustedFromItsSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSending()
		s.fake.renew = func(context.Context, engine.Term) engine.Standing { return engine.Standing{Err: errors.New("down")} }
		w := sendingWorld(t, s)
		defer w.stopNow()
		start := time.Now()
		time.AfterFunc(trusted/2, func() { s.answers <- engine.Answer{Outcome: engine.Granted} })
		end := &ending{}
		l := w.mustTry(t, "x", end)
		if left := l.Remaining(); left != trusted/2 {
			t.Errorf("%v left", left)
		}
		time.Sleep(trusted)
		if _, at, n := end.get(); n != 1 || at.Sub(start) != trusted {
			t.Errorf("ended %d times, after %v", n, at.Sub(start))
		}
	})
}

func TestWhoLeavesASentRequestDoesNotHoldIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSending()
		w := sendingWorld(t, s)
		defer w.stopNow()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		start := time.Now()
		res := w.Try(ctx, ask("x", nil))
		if res.Lease != nil || !res.Unknown || !errors.Is(res.Ctx, context.DeadlineExceeded) || time.Since(start) != 100*time.Millisecond+grace {
			t.Errorf("after %v: %+v", time.Since(start), res)
		}
		// Others wait for it in the engine at most, and the late grant goes back.
		s.refuses = true
		w.mustTry(t, "y", nil)
		if n, _, removals := s.counts(); n != 1 || removals != 0 {
			t.Errorf("%d requests and %d removals beside the one under way", n, removals)
		}
		s.answers <- engine.Answer{Outcome: engine.Granted}
		synctest.Wait()
		if n, _, removals := s.counts(); n != 1 || removals != 1 || len(w.Held("x")) != 0 || s.open.Load() != 0 {
			t.Errorf("%d requests, %d removals, %d held, %d open", n, removals, len(w.Held("x")), s.open.Load())
		}
	})
}

// What a request needs after its first answer may take long: nobody waits for that,
// whether it was sent by its caller or came alone to the goroutine that makes the calls.
func TestARequestThatNeedsMoreHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSending()
		w := sendingWorld(t, s)
		defer w.stopNow()
		more := make(chan struct{})
		s.rest = func() { <-more }
		results := make(chan Result)
		try := func(name string) {
			go func() { results <- w.Try(t.Context(), ask(name, nil)) }()
			synctest.Wait()
		}
		try("a") // its answer does not come at once, so the next one waits for a call
		try("b")
		if n := s.open.Load(); n != 1 {
			t.Errorf("%d were sent at once", n)
		}
		s.more = true
		s.answers <- engine.Answer{Outcome: engine.Granted, Token: 1}
		synctest.Wait()
		s.answers <- engine.Answer{Outcome: engine.Granted, Token: 2}
		synctest.Wait()
		if n := s.open.Load(); n != 2 {
			t.Errorf("%d wait for more", n)
		}
		s.more = false
		s.answers <- engine.Answer{Outcome: engine.Granted, Token: 3}
		w.mustTry(t, "c", nil)
		close(more)
		for range 2 {
			if res := <-results; res.Lease == nil {
				t.Errorf("got %+v", res)
			}
		}
		if n, _, _ := s.counts(); n != 0 || s.open.Load() != 0 {
			t.Errorf("%d asked in another way, %d open", n, s.open.Load())
		}
	})
}

func TestAnAnswerWithinTheGraceIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSending()
		w := sendingWorld(t, s)
		defer w.stopNow()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		time.AfterFunc(100*time.Millisecond+grace/2, func() { s.answers <- busy(rival("1", 0)) })
		if res := w.Try(ctx, ask("x", nil)); !res.Busy || res.Unknown {
			t.Errorf("got %+v", res)
		}
	})
}

func TestASentRequestWithoutAnAnswerIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSending()
		w := sendingWorld(t, s)
		defer w.stopNow()
		start := time.Now()
		if res := w.Try(t.Context(), ask("x", nil)); !res.Unknown || res.Ctx != nil || time.Since(start) != trusted {
			t.Errorf("after %v: %+v", time.Since(start), res)
		}
		if s.open.Load() != 0 {
			t.Error("it is open still")
		}
	})
}

func TestClosingSeesASentRequestThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSending()
		w := sendingWorld(t, s)
		results := make(chan Result)
		go func() { results <- w.Wait(t.Context(), ask("x", nil)) }()
		synctest.Wait()
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			w.Close(context.Background())
		}()
		if res := <-results; !res.Closed {
			t.Errorf("got %+v", res)
		}
		s.answers <- engine.Answer{Outcome: engine.Granted}
		<-closed
		if _, _, removals := s.counts(); removals != 1 || s.open.Load() != 0 {
			t.Errorf("%d removals, %d open", removals, s.open.Load())
		}

		s = newSending()
		w = sendingWorld(t, s)
		go func() { results <- w.Wait(t.Context(), ask("x", nil)) }()
		synctest.Wait()
		w.stopNow()
		if res := <-results; !res.Closed || s.open.Load() != 0 {
			t.Errorf("%d open, got %+v", s.open.Load(), res)
		}
	})
}
