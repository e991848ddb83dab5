package keeper

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgmutex/pgmutex/engine"
)

func TestWatch(t *testing.T) {
	const s = time.Second
	type sight struct {
		beat          string
		age           time.Duration
		sent, arrived time.Duration
	}
	for name, c := range map[string]struct {
		sights []sight
		expiry time.Duration
	}{
		"the store's age is believed once": {[]sight{{"a", 4 * s, 0, s}}, s + stale - 4*s},
		"and not again for the same heartbeat": {
			[]sight{{"a", 4 * s, 0, s}, {"a", 900 * s, 2 * s, 3 * s}}, s + stale - 4*s,
		},
		"a store set back cannot keep a dead holder for ever": {[]sight{{"a", -3600 * s, 0, s}}, s + stale},
		"a new heartbeat starts anew":                         {[]sight{{"a", 0, 0, s}, {"b", s, 5 * s, 6 * s}}, 6*s + stale - s},
		"and is not older than the look before": {
			[]sight{{"a", 0, 4 * s, 4 * s}, {"b", 3600 * s, 5 * s, 6 * s}}, 6*s + stale - 2*s,
		},
		"the look before counts from its sending": {
			[]sight{{"a", 0, 2 * s, 4 * s}, {"b", 3600 * s, 4 * s, 5 * s}}, 5*s + stale - 3*s,
		},
		"nor is more of its age believed than the margin, a third": {
			[]sight{{"a", 0, 0, 0}, {"b", 3600 * s, 10 * s, 10 * s}}, 10*s + stale - stale/3,
		},
	} {
		var w watch
		for _, x := range c.sights {
			w.look(rival(x.beat, x.age), x.sent, x.arrived)
		}
		if w.expiry != c.expiry {
			t.Errorf("%s: expiry %v, want %v", name, w.expiry, c.expiry)
		}
		last := c.sights[len(c.sights)-1]
		if w.take(c.expiry-1) != "" || w.take(c.expiry) != last.beat {
			t.Errorf("%s: takes %q before and %q at the expiry", name, w.take(c.expiry-1), w.take(c.expiry))
		}
	}
}

func TestWaiterTakesExactlyTheHeartbeatItWatchedWhenItExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const age = 4 * time.Second
		f := &fake{acquire: func(_ context.Context, r engine.Request) engine.Answer {
			if r.Take == "beat" {
				return engine.Answer{Outcome: engine.Granted, TookOver: rival("beat", stale)}
			}
			return busy(rival("beat", age))
		}}
		w := newWorld(t, f)
		defer w.stopNow()
		start := time.Now()
		res := w.Wait(t.Context(), ask("x", nil))
		if res.Lease == nil {
			t.Fatalf("got %+v", res)
		}
		if waited := time.Since(start); waited != stale-age {
			t.Fatalf("taken after %v, want %v", waited, stale-age)
		}
		for i, r := range f.requests {
			if r.Judge != (i == 0) {
				t.Errorf("request %d: the store's clock judges: %v", i, r.Judge)
			}
		}
		synctest.Wait()
		if w.count(TakenOver) != 1 || w.count(Acquired) != 1 {
			t.Fatalf("%d taken over, %d acquired", w.count(TakenOver), w.count(Acquired))
		}
	})
}

func TestLiveHolderIsNeverTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		f := &fake{acquire: func(_ context.Context, r engine.Request) engine.Answer {
			beat := time.Since(start).Truncate(heartbeat)
			if r.Take != "" {
				t.Errorf("tries to take %q at %v", r.Take, time.Since(start))
			}
			// Its clock is an hour ahead of what it was when the heartbeat was
			// written, on every look but the first.
			age := time.Since(start) - beat
			if time.Since(start) > 0 {
				age += time.Hour
			}
			return busy(rival(beat.String(), age))
		}}
		w := newWorld(t, f)
		defer w.stopNow()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		if res := w.Wait(ctx, ask("x", nil)); !res.Busy || !errors.Is(res.Ctx, context.DeadlineExceeded) {
			t.Fatalf("got %+v", res)
		}
	})
}

// The store's clock makes a step of an hour right after the last heartbeat of a
// holder that is then cut off, and trusts itself for a while still.
func TestAStepOfTheStoresClockTakesNothingFromAHolder(t *testing.T) {
	for last := 5 * time.Second; last < 30*time.Second; last += 700 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			f := &fake{acquire: func(_ context.Context, r engine.Request) engine.Answer {
				now := time.Since(start)
				beat, age := now.Truncate(heartbeat), now-now.Truncate(heartbeat)
				if now > last {
					beat, age = last, now-last+time.Hour
				}
				if r.Take == beat.String() {
					return engine.Answer{Outcome: engine.Granted}
				}
				return busy(rival(beat.String(), age))
			}}
			w := newWorld(t, f)
			defer w.stopNow()
			want := ask("x", nil)
			want.Timing.AlertAfter = trusted - 1 // alerts, too, are a reason to look again
			if res := w.Wait(t.Context(), want); res.Lease == nil {
				t.Fatalf("got %+v", res)
			}
			if after := time.Since(start) - last; after < trusted || after > 2*stale {
				t.Errorf("last heartbeat at %v: taken %v after it, want from %v on", last, after, trusted)
			}
		})
	}
}

func TestHintIsFollowedAtOnceAndAFloodIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var free atomic.Bool
		f := &fake{acquire: func(context.Context, engine.Request) engine.Answer {
			if free.Load() {
				return engine.Answer{Outcome: engine.Granted}
			}
			return busy(rival("1", 0))
		}}
		w := newWorld(t, f)
		defer w.stopNow()
		got := make(chan Result, 1)
		go func() { got <- w.Wait(context.Background(), ask("x", nil)) }()
		synctest.Wait()

		before, _, _ := f.counts()
		for range 1000 {
			w.Freed("x")
			w.Freed("")
			time.Sleep(100 * time.Microsecond)
		}
		after, _, _ := f.counts()
		if tries, most := after-before, int(100*time.Millisecond/hintPause)+2; tries > most {
			t.Fatalf("%d tries for a flood over 100ms, want at most %d", tries, most)
		}
		time.Sleep(time.Second / 4)
		free.Store(true)
		start := time.Now()
		w.Freed("x")
		if res := <-got; res.Lease == nil || time.Since(start) != 0 {
			t.Fatalf("granted %v, %v after the hint", res.Lease != nil, time.Since(start))
		}
	})
}

func TestPollingGrowsWhereHintsCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hinted atomic.Bool
		start := time.Now()
		f := &fake{acquire: func(context.Context, engine.Request) engine.Answer {
			a := busy(rival(time.Since(start).String(), 0)) // always alive
			a.Hinted = hinted.Load()
			return a
		}}
		w := newWorld(t, f)
		defer w.stopNow()
		tries := func() int {
			before, _, _ := f.counts()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			w.Wait(ctx, ask("x", nil))
			after, _, _ := f.counts()
			return after - before
		}
		// Alerts and expiries of the watched heartbeat add tries of their own.
		polled := tries()
		hinted.Store(true)
		if quiet := tries(); polled < 1200 || quiet > polled/4 {
			t.Fatalf("%d tries in ten minutes without hints, %d with", polled, quiet)
		}
	})
}

func TestGoroutinesWaitBehindOneContenderInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const waiters = 50
		var mu sync.Mutex
		held := true
		var w *world
		f := &fake{}
		f.acquire = func(context.Context, engine.Request) engine.Answer {
			mu.Lock()
			defer mu.Unlock()
			if held {
				return busy(rival("1", 0))
			}
			held = true
			return engine.Answer{Outcome: engine.Granted}
		}
		f.release = func(context.Context, engine.Term) engine.Removal {
			mu.Lock()
			defer mu.Unlock()
			held = false
			return engine.Removal{Outcome: engine.Removed}
		}
		w = newWorld(t, f)
		defer w.stopNow()
		var order []int
		var wg sync.WaitGroup
		for i := range waiters {
			wg.Go(func() {
				res := w.Wait(context.Background(), ask("x", nil))
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				res.Lease.Release(context.Background())
			})
			synctest.Wait()
		}
		if requests, _, _ := f.counts(); requests != 1 {
			t.Fatalf("%d waiters of one process made %d requests", waiters, requests)
		}
		mu.Lock()
		held = false
		mu.Unlock()
		w.Freed("x")
		wg.Wait()
		for i, got := range order {
			if got != i {
				t.Fatalf("served in the order %v", order)
			}
		}
		if requests, _, _ := f.counts(); requests > 2*waiters+1 {
			t.Fatalf("%d requests for %d grants", requests, waiters)
		}
	})
}

func TestGivingUpLeavesTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{acquire: func(context.Context, engine.Request) engine.Answer { return busy(rival("1", 0)) }}
		w := newWorld(t, f)
		defer w.stopNow()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if res := w.Wait(ctx, ask("x", nil)); !res.Busy || res.Rival == nil {
			t.Fatalf("got %+v", res)
		}
		synctest.Wait()
		if len(f.left) != 1 || f.left[0] != "x" {
			t.Fatalf("left %q", f.left)
		}
	})
}

func TestFailuresDuringAWait(t *testing.T) {
	down := errors.New("down")
	for name, c := range map[string]struct {
		answers []engine.Answer // the last one repeats
		check   func(Result) bool
	}{
		"at first contact it is returned": {
			[]engine.Answer{{Outcome: engine.Failed, Err: down}},
			func(r Result) bool { return errors.Is(r.Err, down) && !r.Busy && r.Ctx == nil },
		},
		"unknown at first contact as well": {
			[]engine.Answer{{Err: down}},
			func(r Result) bool { return r.Unknown && errors.Is(r.Err, down) },
		},
		"after a busy it is retried": {
			[]engine.Answer{busy(rival("1", 0)), {Outcome: engine.Failed, Err: down}, {Err: down}, {Outcome: engine.Granted}},
			func(r Result) bool { return r.Lease != nil },
		},
		"until the wait ends": {
			[]engine.Answer{busy(rival("1", 0)), {Outcome: engine.Failed, Err: down}},
			func(r Result) bool { return r.Busy && errors.Is(r.Err, down) && r.Ctx != nil },
		},
		"a refusal is returned at once": {
			[]engine.Answer{busy(rival("1", 0)), {Outcome: engine.Refused, Err: down}},
			func(r Result) bool { return r.Refused && errors.Is(r.Err, down) },
		},
		"an engine without an answer grants nothing": {
			[]engine.Answer{{}},
			func(r Result) bool { return r.Unknown },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 0
				w := newWorld(t, &fake{acquire: func(context.Context, engine.Request) engine.Answer {
					a := c.answers[min(n, len(c.answers)-1)]
					n++
					return a
				}})
				defer w.stopNow()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if res := w.Wait(ctx, ask("x", nil)); !c.check(res) {
					t.Fatalf("got %+v", res)
				}
			})
		})
	}
}

func TestRivalAlertOnceForEachHoldAndCleared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var recovered atomic.Bool
		f := &fake{acquire: func(context.Context, engine.Request) engine.Answer {
			if recovered.Load() {
				return busy(rival(time.Now().String(), 0)) // beating
			}
			return busy(rival("1", time.Since(start)))
		}}
		w := newWorld(t, f)
		defer w.stopNow()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		done := make(chan struct{})
		go func() { w.Wait(ctx, ask("x", nil)); close(done) }()
		for range 20 {
			w.Try(t.Context(), ask("x", nil))
			time.Sleep(300 * time.Millisecond)
		}
		if a, c := w.count(Alert), w.count(AlertCleared); a != 1 || c != 0 {
			t.Fatalf("%d alerts, %d cleared after six seconds of silence", a, c)
		}
		recovered.Store(true)
		w.Try(t.Context(), ask("x", nil))
		<-done
		if a, c := w.count(Alert), w.count(AlertCleared); a != 1 || c != 1 {
			t.Fatalf("%d alerts, %d cleared, want one each", a, c)
		}
	})
}
