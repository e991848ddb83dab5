package keeper

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/pgmutex/pgmutex/engine"
)

// The goroutine that contends next after one of the same client has got the lock
// asks for no more than a place in the line, once, and knows who is before it.
func TestWhoeverIsBehindItsOwnClientSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		w := newWorld(t, f)
		defer w.stopNow()
		first := w.Wait(t.Context(), ask("x", nil))
		if first.Lease == nil {
			t.Fatalf("%+v", first)
		}
		// It had the lock before anybody stood in the line, where nobody remembers it.
		granted := make(chan Result, 2)
		f.acquire = func(_ context.Context, r engine.Request) engine.Answer {
			f.mu.Lock()
			n := len(f.requests)
			f.mu.Unlock()
			switch n {
			case 2, 4:
				return engine.Answer{Outcome: engine.Busy, Hinted: true, Place: 3}
			}
			return engine.Answer{Outcome: engine.Granted}
		}
		for range 2 {
			go func() { granted <- w.Wait(t.Context(), ask("x", nil)) }()
		}
		synctest.Wait() // the one contends, the other stands behind it
		w.Freed("x")
		second := <-granted
		synctest.Wait()
		f.mu.Lock()
		var behind []bool
		for _, r := range f.requests {
			behind = append(behind, r.Behind)
		}
		f.mu.Unlock()
		if want := []bool{false, false, false, true}; len(behind) != 4 || behind[3] != want[3] || behind[1] || behind[2] {
			t.Fatalf("behind: %v, want %v", behind, want)
		}
		w.mu.Lock()
		last := w.events[len(w.events)-1]
		w.mu.Unlock()
		if last.Kind != Waiting || last.Rival == nil || last.Rival.ID != second.Lease.Term().ID || last.Place != 3 {
			t.Errorf("last event: %+v", last)
		}
		// Others are before it, and it will be told: its own client's release is no
		// reason to ask.
		if r, err := second.Lease.Release(t.Context()); r != Confirmed {
			t.Fatal(r, err)
		}
		synctest.Wait()
		if n, _, _ := f.counts(); n != 4 {
			t.Errorf("%d requests after the release, want 4", n)
		}
		w.Freed("x")
		third := <-granted
		if n, _, _ := f.counts(); third.Lease == nil || n != 5 || f.requests[4].Behind {
			t.Errorf("%+v after %d requests", third, n)
		}
	})
}
