package keeper

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgmutex/pgmutex/engine"
)

// slowFake answers each call, however large, after the same time.
func slowFake(calls *[]int, mu *sync.Mutex) *batchFake {
	return &batchFake{calls: calls, mu: mu}
}

type batchFake struct {
	fake
	calls *[]int
	mu    *sync.Mutex
	alone func(name string) bool
}

func (f *batchFake) Acquire(ctx context.Context, batch []engine.Request) []engine.Answer {
	f.mu.Lock()
	*f.calls = append(*f.calls, len(batch))
	f.mu.Unlock()
	time.Sleep(time.Millisecond)
	answers := make([]engine.Answer, len(batch))
	seen := map[string]bool{}
	for i, r := range batch {
		if seen[r.Term.Name] {
			panic("one name twice in a batch")
		}
		seen[r.Term.Name] = true
		answers[i].Outcome = engine.Granted
		if len(batch) > 1 && f.alone != nil && f.alone(r.Term.Name) {
			answers[i] = engine.Answer{Outcome: engine.Busy, Alone: true}
		}
	}
	return answers
}

func batchWorld(t *testing.T, f *batchFake) *world {
	w := newWorld(t, &f.fake)
	w.Keeper.engine = f
	return w
}

func TestPendingAcquisitionsTravelTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		var calls []int
		var mu sync.Mutex
		w := batchWorld(t, slowFake(&calls, &mu))
		defer w.stopNow()
		start := time.Now()
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				if res := w.Try(t.Context(), ask(fmt.Sprint(i), nil)); res.Lease == nil {
					t.Errorf("%d: %+v", i, res)
				}
			})
		}
		wg.Wait()
		// All that come during the first call are in the second one.
		sum := 0
		for _, size := range calls {
			sum += size
		}
		if len(calls) > 2 || sum != n {
			t.Fatalf("calls of %v", calls)
		}
		if took := time.Since(start); took > 2*time.Millisecond {
			t.Fatalf("took %v", took)
		}
	})
}

func TestABatchHasEachNameOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls []int
		var mu sync.Mutex
		w := batchWorld(t, slowFake(&calls, &mu)) // panics otherwise
		defer w.stopNow()
		var wg sync.WaitGroup
		for i := range 60 {
			wg.Go(func() { w.Try(t.Context(), ask(fmt.Sprint(i%20), nil)) })
		}
		wg.Wait()
	})
}

func TestWhatABatchCannotDoIsAskedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls []int
		var mu sync.Mutex
		f := slowFake(&calls, &mu)
		f.alone = func(name string) bool { return name == "7" }
		w := batchWorld(t, f)
		defer w.stopNow()
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				if res := w.Try(t.Context(), ask(fmt.Sprint(i), nil)); res.Lease == nil {
					t.Errorf("%d: %+v", i, res)
				}
			})
		}
		wg.Wait()
		if len(calls) > 3 {
			t.Fatalf("calls of %v", calls)
		}
	})
}

// Tries at one name that wait for a call share the answer that somebody else holds
// it, and no other answer; whoever comes during a call is not answered by it.
func TestTriesAtOneNameShareABusyAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 20
		held := true
		f := &fake{acquire: func(context.Context, engine.Request) engine.Answer {
			time.Sleep(time.Millisecond)
			if held {
				return busy(rival("1", 0))
			}
			return engine.Answer{Outcome: engine.Granted}
		}}
		w := newWorld(t, f)
		defer w.stopNow()
		all := func() (granted int) {
			results := make(chan Result, n)
			for range n {
				go func() { results <- w.Try(t.Context(), ask("x", nil)) }()
			}
			for range n {
				switch res := <-results; {
				case res.Lease != nil:
					granted++
				case !res.Busy || res.Rival == nil:
					t.Errorf("%+v", res)
				}
			}
			return granted
		}
		if granted, calls := all(), len(f.requests); granted != 0 || calls > 2 {
			t.Errorf("%d granted, %d requests sent for %d tries", granted, calls, n)
		}
		if w.count(Contended) != n {
			t.Errorf("%d events, want %d", w.count(Contended), n)
		}
		// This engine grants to everybody, so each grant was asked for.
		held = false
		before := len(f.requests)
		if granted := all(); granted != n || len(f.requests)-before != n {
			t.Errorf("%d granted by %d requests", granted, len(f.requests)-before)
		}
	})
}

func TestBatcherUnderCancellation(t *testing.T) {
	type item struct {
		n        int
		answered atomic.Int32
	}
	var inside, gathered, withdrawn atomic.Int32
	var work, items sync.WaitGroup
	b := batcher[*item, int]{
		name: func(i *item) string { return fmt.Sprint(i.n % 7) },
		most: 5,
		turn: newTurn(),
		spawn: func(fn func()) bool {
			work.Go(fn)
			return true
		},
		call: func(batch []*item) []int {
			if inside.Add(1) != 1 || len(batch) > 5 {
				t.Error("two calls at a time, or one too large")
			}
			defer inside.Add(-1)
			gathered.Store(max(gathered.Load(), int32(len(batch))))
			out := make([]int, len(batch))
			for i, v := range batch {
				out[i] = v.n * 2
			}
			time.Sleep(time.Duration(len(batch)) * 10 * time.Microsecond)
			return out
		},
		deliver: func(i *item, out int) {
			if out != i.n*2 || i.answered.Add(1) != 1 {
				t.Errorf("%d: answered with %d, or twice", i.n, out)
			}
			items.Done()
		},
	}
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			for j := range 40 {
				it := &item{n: i*100 + j}
				items.Add(1)
				put := b.put
				if i%3 == 0 {
					put = b.now
				}
				if !put(it) {
					t.Error("refused")
				}
				if j%2 == 0 {
					runtime.Gosched()
				}
				if j%3 == 0 && b.withdraw(it) {
					withdrawn.Add(1)
					if it.answered.Load() != 0 {
						t.Error("withdrawn and answered")
					}
					items.Done()
				}
			}
		})
	}
	wg.Wait()
	items.Wait()
	work.Wait()
	if b.busy || len(b.queue) != 0 || !b.turn.free() {
		t.Fatalf("left busy %v, %d in the queue", b.busy, len(b.queue))
	}
	if gathered.Load() < 2 || withdrawn.Load() == 0 {
		t.Fatalf("%d in one call, %d withdrawn: this has shown nothing", gathered.Load(), withdrawn.Load())
	}
}

// A call of one kind gathers whoever comes while one of the other kind is made,
// but a slow one holds it up for no longer than that.
func TestATurnIsWaitedForButNotForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls []int
		b := batcher[*int, int]{
			name:    func(i *int) string { return fmt.Sprint(*i) },
			most:    maxBatch,
			turn:    newTurn(),
			spawn:   func(fn func()) bool { go fn(); return true },
			call:    func(batch []*int) []int { calls = append(calls, len(batch)); return make([]int, len(batch)) },
			deliver: func(*int, int) {},
		}
		last := 0
		put := func(n int) {
			for range n {
				last++
				i := last
				b.put(&i)
			}
			synctest.Wait()
		}
		if !b.turn.free() {
			t.Fatal("taken")
		}
		put(3)
		time.Sleep(gatherMost / 2)
		put(4)
		b.turn.give()
		synctest.Wait()
		if len(calls) != 1 || calls[0] != 7 {
			t.Fatalf("calls of %v, want one of 7", calls)
		}
		b.turn.free()
		put(2)
		time.Sleep(gatherMost)
		synctest.Wait()
		if len(calls) != 2 || b.busy {
			t.Fatalf("calls of %v", calls)
		}
		b.turn.give()
	})
}
