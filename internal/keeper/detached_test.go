package keeper

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgmutex/pgmutex/engine"
)

// silent is a detached engine that never answers.
func silent() *fake {
	return &fake{
		detached: true,
		acquire: func(ctx context.Context, _ engine.Request) engine.Answer {
			<-ctx.Done()
			return engine.Answer{Err: context.Cause(ctx)}
		},
		release: func(ctx context.Context, _ engine.Term) engine.Removal {
			<-ctx.Done()
			return engine.Removal{Err: context.Cause(ctx)}
		},
	}
}

func TestDetachedAttemptEndsWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := silent()
		w := newWorld(t, f)
		defer w.stopNow()
		for _, call := range []func(context.Context, Ask) Result{w.Try, w.Wait} {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			start := time.Now()
			res := call(ctx, ask("x", nil))
			cancel()
			if res.Lease != nil || !res.Unknown || !errors.Is(res.Ctx, context.DeadlineExceeded) {
				t.Errorf("got %+v", res)
			}
			if waited := time.Since(start); waited != 100*time.Millisecond+grace {
				t.Errorf("returned after %v", waited)
			}
		}
		// What may have come of them is given back, one after the other.
		time.Sleep(stale)
		synctest.Wait()
		if _, _, removals := f.counts(); removals < 2 {
			t.Errorf("%d removals", removals)
		}
	})
}

func TestDetachedGrantThatNobodyWaitsForIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f := &fake{detached: true, acquire: func(context.Context, engine.Request) engine.Answer {
			cancel()
			return engine.Answer{Outcome: engine.Granted}
		}}
		w := newWorld(t, f)
		defer w.stopNow()
		if res := w.Try(ctx, ask("x", nil)); res.Lease != nil || !res.Unknown {
			t.Errorf("got %+v", res)
		}
		synctest.Wait()
		if _, _, removals := f.counts(); removals != 1 || len(w.Held("")) != 0 {
			t.Errorf("%d removals, %d held", removals, len(w.Held("")))
		}
	})
}

func TestDetachedAttemptIsNotTrustedForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, silent())
		defer w.stopNow()
		start := time.Now()
		if res := w.Try(t.Context(), ask("x", nil)); !res.Unknown || res.Ctx != nil {
			t.Errorf("got %+v", res)
		}
		if waited := time.Since(start); waited != trusted {
			t.Errorf("returned after %v", waited)
		}
	})
}

func TestRefuseEndsADetachedAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, silent())
		defer w.stopNow()
		results := make(chan Result)
		go func() { results <- w.Wait(t.Context(), ask("x", nil)) }()
		synctest.Wait()
		start := time.Now()
		w.Refuse()
		if res := <-results; !res.Closed || time.Since(start) != grace {
			t.Errorf("after %v: %+v", time.Since(start), res)
		}
	})
}

func TestDetachedAttemptOfAClosedEngineIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{detached: true}
		w := newWorld(t, f)
		f.acquire = func(context.Context, engine.Request) engine.Answer {
			w.Refuse()
			return engine.Answer{Outcome: engine.Refused, Err: errors.New("the engine is closed")}
		}
		for _, call := range []func(context.Context, Ask) Result{w.Try, w.Wait} {
			if res := call(t.Context(), ask("x", nil)); !res.Closed || res.Err != nil {
				t.Errorf("got %+v", res)
			}
		}
		w.stopNow()
	})
}

func TestDetachedReleaseIsBoundedAndGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := silent()
		f.acquire = nil
		w := newWorld(t, f)
		l := w.mustTry(t, "x", nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // it is ignored
		start := time.Now()
		removal, err := l.Release(ctx)
		if removal != InProgress || err == nil || time.Since(start) != 2*time.Second {
			t.Errorf("after %v: %v, %v", time.Since(start), removal, err)
		}
		synctest.Wait()
		f.release = nil
		if left := w.Close(context.Background()); len(left) > 0 {
			t.Errorf("left %v", left)
		}
		if w.count(Released) != 1 {
			t.Errorf("%d released", w.count(Released))
		}
	})
}
