package keeper

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgmutex/pgmutex/engine"
)

func TestReleaseConfirmsAndReportsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		w := newWorld(t, f)
		defer w.stopNow()
		l := w.mustTry(t, "x", nil)
		for range 3 {
			if removal, err := l.Release(t.Context()); removal != Confirmed || err != nil {
				t.Fatalf("got %v, %v", removal, err)
			}
		}
		synctest.Wait()
		if _, _, removals := f.counts(); removals != 1 || w.count(Released) != 1 {
			t.Fatalf("%d removals, %d events, want one each", removals, w.count(Released))
		}
		if e := l.Ended(); e == nil || !e.Released {
			t.Fatalf("ended %+v", e)
		}
	})
}

func TestReleaseIgnoresTheEndOfItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, &fake{release: func(ctx context.Context, _ engine.Term) engine.Removal {
			if ctx.Err() != nil {
				return engine.Removal{Err: ctx.Err()}
			}
			return engine.Removal{Outcome: engine.Removed}
		}})
		defer w.stopNow()
		l := w.mustTry(t, "x", nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if removal, err := l.Release(ctx); removal != Confirmed {
			t.Fatalf("got %v, %v", removal, err)
		}
	})
}

func TestUnconfirmedReleaseGoesOnInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var healed atomic.Bool
		down := errors.New("down")
		f := &fake{release: func(context.Context, engine.Term) engine.Removal {
			if !healed.Load() {
				return engine.Removal{Err: down}
			}
			return engine.Removal{Outcome: engine.Absent} // an earlier try had got through
		}}
		w := newWorld(t, f)
		defer w.stopNow()
		l := w.mustTry(t, "x", nil)
		removal, err := l.Release(t.Context())
		if removal != InProgress || !errors.Is(err, down) || w.count(ReleaseUnconfirmed) != 1 {
			t.Fatalf("got %v, %v, %d events", removal, err, w.count(ReleaseUnconfirmed))
		}
		if l.Held() {
			t.Fatal("still held after its release")
		}
		healed.Store(true)
		time.Sleep(backoffMost)
		synctest.Wait()
		if removal, err := l.Release(t.Context()); removal != Confirmed || err != nil {
			t.Fatalf("later: %v, %v", removal, err)
		}
		if w.count(Released) != 1 || w.count(Lost) != 0 {
			t.Fatalf("%d released, %d lost", w.count(Released), w.count(Lost))
		}
	})
}

func TestReleaseOfWhatWasAlreadyGoneIsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, &fake{
			release: func(context.Context, engine.Term) engine.Removal { return engine.Removal{Outcome: engine.Absent} },
			explain: func(engine.Term) engine.Standing {
				return engine.Standing{Health: engine.Gone, Reason: engine.LostReleased, By: "operator"}
			},
		})
		defer w.stopNow()
		l := w.mustTry(t, "x", nil)
		for range 2 {
			if removal, _ := l.Release(t.Context()); removal != WasLost {
				t.Fatalf("got %v", removal)
			}
		}
		synctest.Wait()
		if reason, by := l.Loss().Reason(); reason != engine.LostReleased || by != "operator" {
			t.Fatalf("reason %q by %q", reason, by)
		}
		if w.count(Lost) != 1 || w.count(Released) != 0 {
			t.Fatalf("%d lost, %d released", w.count(Lost), w.count(Released))
		}
	})
}

func TestGhostIsRemovedUntilItCannotArriveAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var arrived atomic.Bool
		f := &fake{
			acquire: func(context.Context, engine.Request) engine.Answer { return engine.Answer{} },
			release: func(context.Context, engine.Term) engine.Removal {
				if arrived.Load() {
					return engine.Removal{Outcome: engine.Removed}
				}
				return engine.Removal{Outcome: engine.Absent}
			},
		}
		w := newWorld(t, f)
		defer w.stopNow()
		if res := w.Try(t.Context(), ask("x", nil)); !res.Unknown {
			t.Fatalf("got %+v", res)
		}
		time.Sleep(stale / 2)
		if n := len(w.ghosts("x")); n != 1 {
			t.Fatalf("%d ghosts known after finding none, want 1", n)
		}
		// Our own next attempt may take the ghost's row.
		w.Try(t.Context(), ask("x", nil))
		f.mu.Lock()
		own := f.requests[len(f.requests)-1].Own
		ghost := f.requests[0].Term.ID
		f.mu.Unlock()
		if !slices.Contains(own, ghost) {
			t.Fatalf("own attempts %q do not name the ghost %q", own, ghost)
		}
		arrived.Store(true)
		time.Sleep(backoffMost)
		if n := len(w.ghosts("x")); n != 0 {
			t.Fatalf("%d ghosts left after they were found and removed", n)
		}

		arrived.Store(false)
		w.Try(t.Context(), ask("y", nil))
		time.Sleep(stale + 1)
		synctest.Wait()
		if n := len(w.ghosts("y")); n != 0 {
			t.Fatalf("%d ghosts pursued after they would be stale", n)
		}
	})
}

func TestGrantAfterItsCallerHasLeftIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{acquire: func(context.Context, engine.Request) engine.Answer {
			time.Sleep(time.Second)
			return engine.Answer{Outcome: engine.Granted}
		}}
		w := newWorld(t, f)
		defer w.stopNow()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		start := time.Now()
		res := w.Wait(ctx, ask("x", nil))
		if res.Lease != nil || !res.Unknown || !errors.Is(res.Ctx, context.DeadlineExceeded) {
			t.Fatalf("got %+v", res)
		}
		if waited := time.Since(start); waited > 100*time.Millisecond+grace {
			t.Fatalf("returned %v after the call", waited)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if _, _, removals := f.counts(); removals != 1 || len(w.Held("")) != 0 {
			t.Fatalf("%d removals, %d held", removals, len(w.Held("")))
		}
	})
}

func TestNothingIsAskedUnderAnEndedContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		w := newWorld(t, f)
		defer w.stopNow()
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("why")
		cancel(why)
		for _, res := range []Result{w.Try(ctx, ask("x", nil)), w.Wait(ctx, ask("x", nil))} {
			if res.Lease != nil || res.Unknown || res.Busy || !errors.Is(res.Ctx, why) {
				t.Fatalf("got %+v", res)
			}
		}
		if requests, _, _ := f.counts(); requests != 0 {
			t.Fatalf("%d requests", requests)
		}
	})
}

func TestCloseWaitsForOwnersAndGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		w := newWorld(t, f)
		l := w.mustTry(t, "x", nil)
		go func() {
			time.Sleep(time.Minute) // far beyond the trust: it is renewed meanwhile
			if !l.Held() {
				t.Error("lost while Close waited")
			}
			l.Release(context.Background())
		}()
		start := time.Now()
		if left := w.Close(context.Background()); len(left) != 0 {
			t.Fatalf("left %q", left)
		}
		if waited := time.Since(start); waited != time.Minute {
			t.Fatalf("waited %v", waited)
		}
		if _, _, removals := f.counts(); removals != 1 {
			t.Fatalf("%d removals", removals)
		}
	})
}

func TestCloseLeavesWhatIsAtWorkToLapse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		w := newWorld(t, f)
		var end ending
		l := w.mustTry(t, "x", &end)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if left := w.Close(ctx); !slices.Equal(left, []string{"x"}) {
			t.Fatalf("left %q", left)
		}
		if e, _, _ := end.get(); e == nil || !e.Closed || l.Held() {
			t.Fatalf("ended %+v", e)
		}
		if _, _, removals := f.counts(); removals != 0 {
			t.Fatal("given back while its owner was at work")
		}
		if removal, _ := l.Release(t.Context()); removal != WasClosed {
			t.Fatalf("release says %v", removal)
		}
	})
}

func TestCloseEndsWaitsAndRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, &fake{acquire: func(context.Context, engine.Request) engine.Answer { return busy(rival("1", 0)) }})
		results := make(chan Result, 3)
		for range 3 {
			go func() { results <- w.Wait(context.Background(), ask("x", nil)) }()
		}
		synctest.Wait()
		w.Close(context.Background())
		for range 3 {
			if res := <-results; !res.Closed {
				t.Errorf("a waiter got %+v", res)
			}
		}
		if res := w.Try(t.Context(), ask("x", nil)); !res.Closed {
			t.Errorf("after Close: %+v", res)
		}
	})
}

func TestCloseGivesBackAnUnconfirmedRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var healed atomic.Bool
		w := newWorld(t, &fake{release: func(context.Context, engine.Term) engine.Removal {
			if healed.Load() {
				return engine.Removal{Outcome: engine.Removed}
			}
			return engine.Removal{Err: errors.New("down")}
		}})
		l := w.mustTry(t, "x", nil)
		if removal, _ := l.Release(t.Context()); removal != InProgress {
			t.Fatalf("got %v", removal)
		}
		healed.Store(true)
		if left := w.stopNow(); len(left) != 0 {
			t.Fatalf("left %q", left)
		}
		if w.count(Released) != 1 {
			t.Fatal("not given back before Close returned")
		}
	})
}

func TestReleaseUnderWayIsNotOfferedToTheNextAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{release: func(context.Context, engine.Term) engine.Removal {
			time.Sleep(time.Second)
			return engine.Removal{Outcome: engine.Removed}
		}}
		w := newWorld(t, f)
		defer w.stopNow()
		l := w.mustTry(t, "x", nil)
		go l.Release(context.Background())
		synctest.Wait()
		w.mustTry(t, "x", nil)
		if own := f.requests[1].Own; len(own) != 0 {
			t.Fatalf("the next attempt may take %q, which is being removed", own)
		}
	})
}
