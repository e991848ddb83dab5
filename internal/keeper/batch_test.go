package keeper

import (
	"context"
	"fmt"
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

func TestBatcherUnderCancellation(t *testing.T) {
	var inside, answered atomic.Int32
	b := batcher[int, int]{
		name: func(i int) string { return fmt.Sprint(i % 7) },
		most: 5,
		call: func(batch []int) []int {
			if inside.Add(1) != 1 || len(batch) > 5 {
				t.Error("two calls at a time, or one too large")
			}
			defer inside.Add(-1)
			out := make([]int, len(batch))
			for i, v := range batch {
				out[i] = v * 2
			}
			time.Sleep(time.Duration(len(batch)) * 10 * time.Microsecond)
			return out
		},
	}
	var wg sync.WaitGroup
	for i := range 400 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i%20)*100*time.Microsecond)
			defer cancel()
			for j := range 20 {
				if out, ok := b.do(ctx, i*100+j); ok {
					answered.Add(1)
					if out != (i*100+j)*2 {
						t.Errorf("got somebody else's answer: %d", out)
					}
				}
			}
		})
	}
	wg.Wait()
	if b.busy || len(b.queue) != 0 {
		t.Fatalf("left busy %v, %d in the queue", b.busy, len(b.queue))
	}
	if out, ok := b.do(context.Background(), 21); !ok || out != 42 {
		t.Fatalf("afterwards: %d, %v", out, ok)
	}
	if answered.Load() == 0 {
		t.Fatal("nothing was answered")
	}
}
