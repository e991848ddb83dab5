package memory_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/memory"
)

// Waiters that listen to hints only must all have their turns, in spite of
// everything that can go wrong on their way, once it has stopped going wrong.
func TestLineUnderFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		const procs, rounds = 6, 20
		var wg sync.WaitGroup
		stop := make(chan struct{})
		for i := range procs {
			p := open(t, s, fmt.Sprint("p", i))
			wg.Go(func() {
				for range rounds {
					p.turn("x")
				}
			})
		}
		go func() {
			defer s.SetFaults("", memory.Faults{})
			rnd := rand.New(rand.NewPCG(1, 2))
			ms := func(n int) time.Duration { return time.Duration(rnd.IntN(n)) * time.Millisecond }
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				case <-time.After(ms(500)):
				}
				var f memory.Faults
				switch rnd.IntN(6) {
				case 0:
					f.Partitioned = true
				case 1:
					f.DropReplies = true
				case 2:
					f.Delay, f.ReplyDelay = ms(300), ms(300)
				case 3:
					f.NoHints = true
				}
				s.SetFaults(fmt.Sprint("p", rnd.IntN(procs)), f)
				if n%10 == 9 {
					s.SetFaults("", memory.Faults{})
				}
			}
		}()
		wg.Wait()
		close(stop)
		synctest.Wait()
	})
}

// turn waits for name, holds it for a moment and gives it back, as a client
// would: attempts that were not answered are disowned and may be taken.
func (p *proc) turn(name string) {
	var own []string
	call := func(f func(ctx context.Context)) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		f(ctx)
	}
	for tries := 0; ; tries++ {
		if tries > 10_000 {
			p.t.Errorf("%s: never had its turn", p.label)
			return
		}
		req := p.request(name)
		req.Term.StaleAfter, req.Wait, req.Own = 5*time.Second, true, own
		var a engine.Answer
		call(func(ctx context.Context) { a = p.Acquire(ctx, []engine.Request{req})[0] })
		switch a.Outcome {
		case engine.Granted:
			time.Sleep(10 * time.Millisecond)
			for {
				var r engine.Removal
				call(func(ctx context.Context) { r = p.Release(ctx, []engine.Term{req.Term})[0] })
				if r.Outcome != engine.Unconfirmed {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		case engine.Unknown:
			own = append(own, req.Term.ID)
			time.Sleep(100 * time.Millisecond)
		case engine.Busy:
			// A hint, or at the latest the safety poll.
			for n := 0; n < 100; n++ {
				time.Sleep(20 * time.Millisecond)
				p.sink.mu.Lock()
				hinted := len(p.sink.freed) > 0
				p.sink.freed = nil
				p.sink.mu.Unlock()
				if hinted {
					break
				}
			}
		default:
			p.t.Errorf("%s: %+v", p.label, a)
			return
		}
	}
}

// A slowSink takes its time, which no sink should.
type slowSink struct {
	sink
	entered, leave chan struct{}
}

func (s *slowSink) Freed(string) {
	close(s.entered)
	<-s.leave
}

func TestCloseJoinsCallsOfTheSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		a := open(t, s, "a")
		slow := &slowSink{entered: make(chan struct{}), leave: make(chan struct{})}
		eng := s.Engine()
		if err := eng.Start(t.Context(), slow); err != nil {
			t.Fatal(err)
		}
		term := a.hold("x")
		req := engine.Request{Term: engine.Term{Name: "x", ID: "b~1", StaleAfter: stale}, Wait: true}
		a.busy(eng.Acquire(t.Context(), []engine.Request{req})[0])
		go a.release(term)
		<-slow.entered
		closed := make(chan error, 1)
		go func() { closed <- eng.Close(context.Background()) }()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("Close returned during a call of the sink")
		default:
		}
		close(slow.leave)
		if err := <-closed; err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

func TestCloseGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		slow := &slowSink{entered: make(chan struct{}), leave: make(chan struct{})}
		eng := s.Engine()
		if err := eng.Start(t.Context(), slow); err != nil {
			t.Fatal(err)
		}
		s.SetFaults("", memory.Faults{Partitioned: true})
		go s.SetFaults("", memory.Faults{}) // hints at everything
		<-slow.entered
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := eng.Close(ctx); err != context.DeadlineExceeded {
			t.Errorf("Close: %v", err)
		}
		close(slow.leave)
	})
}
