package keeper

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgmutex/pgmutex/engine"
)

// hang is an engine's call that never comes back by itself.
func hang(ctx context.Context) { <-ctx.Done() }

func TestLeaseEndsAtItsDeadlineWhileTheRenewalHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, &fake{renew: func(ctx context.Context, _ engine.Term) engine.Standing {
			hang(ctx)
			return engine.Standing{}
		}})
		defer w.stopNow()
		start := time.Now()
		var end ending
		l := w.mustTry(t, "x", &end)
		time.Sleep(trusted - 1)
		if !l.Held() {
			t.Fatal("not held before the deadline")
		}
		time.Sleep(1)
		if l.Held() {
			t.Fatal("held at the deadline")
		}
		synctest.Wait()
		e, at, n := end.get()
		if n != 1 || at.Sub(start) != trusted {
			t.Fatalf("told %d times, after %v; want once after %v", n, at.Sub(start), trusted)
		}
		if reason, _ := e.Reason(); reason != engine.LostExpired {
			t.Fatalf("reason %q", reason)
		}
	})
}

func TestTrustCountsFromTheSendingOfTheRequest(t *testing.T) {
	const slow = 5 * time.Second
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, &fake{
			acquire: func(context.Context, engine.Request) engine.Answer {
				time.Sleep(slow)
				return engine.Answer{Outcome: engine.Granted}
			},
			renew: func(ctx context.Context, _ engine.Term) engine.Standing { hang(ctx); return engine.Standing{} },
		})
		defer w.stopNow()
		l := w.mustTry(t, "x", nil)
		if got := l.Remaining(); got != trusted-slow {
			t.Fatalf("trusted for %v after a reply that took %v, want %v", got, slow, trusted-slow)
		}
	})
}

func TestRenewalCountsFromItsOwnSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slow = 3 * time.Second
		w := newWorld(t, &fake{renew: func(context.Context, engine.Term) engine.Standing {
			time.Sleep(slow)
			return engine.Standing{Health: engine.Held}
		}})
		defer w.stopNow()
		l := w.mustTry(t, "x", nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		// Sent at most an interval after the last answer, and slow to return.
		if r := l.Remaining(); r > trusted-slow || r <= 0 {
			t.Fatalf("remaining %v with answers that take %v", r, slow)
		}
	})
}

func TestLateGrantIsNotHeldAndGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{acquire: func(context.Context, engine.Request) engine.Answer {
			time.Sleep(trusted)
			return engine.Answer{Outcome: engine.Granted}
		}}
		w := newWorld(t, f)
		defer w.stopNow()
		res := w.Try(t.Context(), ask("x", nil))
		if res.Lease != nil || !res.Unknown || !errors.Is(res.Err, errLate) {
			t.Fatalf("got %+v", res)
		}
		synctest.Wait()
		if _, _, removals := f.counts(); removals != 1 {
			t.Fatalf("%d removals, want 1", removals)
		}
	})
}

func TestConfirmationAfterTheDeadlineRevivesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		w := newWorld(t, &fake{renew: func(context.Context, engine.Term) engine.Standing {
			if calls.Add(1) == 1 {
				time.Sleep(trusted) // ignores its context, and answers in the end
			}
			return engine.Standing{Health: engine.Held}
		}})
		defer w.stopNow()
		var end ending
		l := w.mustTry(t, "x", &end)
		time.Sleep(3 * trusted)
		synctest.Wait()
		if l.Held() {
			t.Fatal("revived")
		}
		if _, _, n := end.get(); n != 1 {
			t.Fatalf("told %d times", n)
		}
	})
}

func TestOneFailedHeartbeatLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		f := &fake{renew: func(context.Context, engine.Term) engine.Standing {
			if calls.Add(1)%3 != 0 { // two of three fail
				return engine.Standing{Err: errors.New("connection reset")}
			}
			return engine.Standing{Health: engine.Held}
		}}
		w := newWorld(t, f)
		defer w.stopNow()
		l := w.mustTry(t, "x", nil)
		time.Sleep(time.Hour)
		if !l.Held() {
			t.Fatal("lost although every third heartbeat got through")
		}
	})
}

func TestSlowLinkLosesNothing(t *testing.T) {
	// One call is under way at a time, so two round trips must fit into the trust.
	for _, roundTrip := range []time.Duration{heartbeat, 2 * heartbeat, 3 * heartbeat, trusted/2 - heartbeat/8} {
		synctest.Test(t, func(t *testing.T) {
			slow := func(ctx context.Context) error {
				select {
				case <-time.After(roundTrip):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			w := newWorld(t, &fake{
				acquire: func(ctx context.Context, _ engine.Request) engine.Answer {
					if slow(ctx) != nil {
						return engine.Answer{}
					}
					return engine.Answer{Outcome: engine.Granted}
				},
				renew: func(ctx context.Context, _ engine.Term) engine.Standing {
					if err := slow(ctx); err != nil {
						return engine.Standing{Err: err}
					}
					return engine.Standing{Health: engine.Held}
				},
			})
			defer w.stopNow()
			l := w.mustTry(t, "x", nil)
			time.Sleep(10 * time.Minute)
			if !l.Held() {
				t.Errorf("lost with a round trip of %v in %v of trust", roundTrip, trusted)
			}
		})
	}
}

func TestHungConnectionLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		w := newWorld(t, &fake{renew: func(ctx context.Context, _ engine.Term) engine.Standing {
			if calls.Add(1)%2 == 1 { // every other call meets a dead connection
				hang(ctx)
				return engine.Standing{Err: ctx.Err()}
			}
			return engine.Standing{Health: engine.Held}
		}})
		defer w.stopNow()
		l := w.mustTry(t, "x", nil)
		time.Sleep(10 * time.Minute)
		if !l.Held() {
			t.Fatal("one hung call used up the trust")
		}
	})
}

func TestGoneEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{renew: func(context.Context, engine.Term) engine.Standing {
			return engine.Standing{Health: engine.Gone, Reason: engine.LostTakenOver, By: "other"}
		}}
		w := newWorld(t, f)
		defer w.stopNow()
		start := time.Now()
		var end ending
		l := w.mustTry(t, "x", &end)
		time.Sleep(2 * heartbeat)
		synctest.Wait()
		e, at, _ := end.get()
		if l.Held() || e == nil || at.Sub(start) != heartbeat {
			t.Fatalf("held %v, ended after %v", l.Held(), at.Sub(start))
		}
		if reason, by := e.Reason(); reason != engine.LostTakenOver || by != "other" {
			t.Fatalf("reason %q by %q", reason, by)
		}
		if removal, err := l.Release(t.Context()); removal != WasLost || err != nil {
			t.Fatalf("release: %v, %v", removal, err)
		}
		synctest.Wait()
		if _, _, removals := f.counts(); removals != 0 {
			t.Fatal("a term that is certainly gone was removed again")
		}
	})
}

func TestReasonIsRefinedOnceAndLostReportedAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, &fake{
			renew: func(ctx context.Context, _ engine.Term) engine.Standing { hang(ctx); return engine.Standing{} },
			explain: func(engine.Term) engine.Standing {
				time.Sleep(time.Second / 2)
				return engine.Standing{Health: engine.Gone, Reason: engine.LostTakenOver, By: "other"}
			},
		})
		defer w.stopNow()
		var end ending
		w.mustTry(t, "x", &end)
		time.Sleep(trusted + 1)
		synctest.Wait()
		e, _, _ := end.get()
		if reason, _ := e.Reason(); reason != engine.LostExpired || w.count(Lost) != 0 {
			t.Fatalf("reason %q, %d events before the store has answered", reason, w.count(Lost))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if reason, by := e.Reason(); reason != engine.LostTakenOver || by != "other" || w.count(Lost) != 1 {
			t.Fatalf("reason %q by %q, %d events", reason, by, w.count(Lost))
		}
	})
}

func TestAllLeasesAreRenewedInOneCallForEachInterval(t *testing.T) {
	const leases = 500
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		w := newWorld(t, f)
		defer w.stopNow()
		for i := range leases {
			w.mustTry(t, fmt.Sprint(i), nil)
			time.Sleep(7 * time.Millisecond) // spread over several intervals
		}
		time.Sleep(3 * heartbeat)
		_, before, _ := f.counts()
		const intervals = 20
		time.Sleep(intervals * heartbeat)
		_, after, _ := f.counts()
		if calls := after - before; calls > intervals {
			t.Fatalf("%d calls in %d intervals", calls, intervals)
		}
		if n := len(f.renewals[len(f.renewals)-1]); n != leases {
			t.Fatalf("the last call renewed %d of %d", n, leases)
		}
		if got := len(w.Held("")); got != leases {
			t.Fatalf("%d held", got)
		}
	})
}

func TestLossIsPutDownToWhatTheEngineSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, &fake{renew: func(context.Context, engine.Term) engine.Standing {
			return engine.Standing{Reason: engine.LostReadOnly, Err: errors.New("read-only")}
		}})
		defer w.stopNow()
		var end ending
		w.mustTry(t, "x", &end)
		time.Sleep(trusted)
		synctest.Wait()
		e, _, _ := end.get()
		if e == nil {
			t.Fatal("not ended")
		}
		if reason, _ := e.Reason(); reason != engine.LostReadOnly {
			t.Fatalf("reason %q", reason)
		}
	})
}

func TestStopRequestEndsTheHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{renew: func(context.Context, engine.Term) engine.Standing {
			return engine.Standing{Health: engine.Held, Stop: true, StopBy: "operator"}
		}}
		w := newWorld(t, f)
		defer w.stopNow()
		var end ending
		l := w.mustTry(t, "x", &end)
		time.Sleep(2 * heartbeat)
		e, _, _ := end.get()
		if e == nil {
			t.Fatal("not ended")
		}
		if reason, by := e.Reason(); reason != engine.LostReleased || by != "operator" {
			t.Fatalf("reason %q by %q", reason, by)
		}
		// Its row is still ours: the owner's release takes it away.
		if removal, _ := l.Release(t.Context()); removal != WasLost {
			t.Fatalf("release says %v", removal)
		}
		synctest.Wait()
		if _, _, removals := f.counts(); removals != 1 {
			t.Fatalf("%d removals, want 1", removals)
		}
	})
}

func TestOwnAlertOnceAndCleared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failing atomic.Bool
		w := newWorld(t, &fake{renew: func(context.Context, engine.Term) engine.Standing {
			if failing.Load() {
				return engine.Standing{Err: errors.New("unreachable")}
			}
			return engine.Standing{Health: engine.Held}
		}})
		defer w.stopNow()
		w.mustTry(t, "x", nil)
		time.Sleep(time.Minute)
		if n := w.count(Alert); n != 0 {
			t.Fatalf("%d alerts while all is well", n)
		}
		failing.Store(true)
		time.Sleep(5 * time.Second)
		failing.Store(false)
		time.Sleep(5 * time.Second)
		if a, c := w.count(Alert), w.count(AlertCleared); a != 1 || c != 1 {
			t.Fatalf("%d alerts, %d cleared, want one each", a, c)
		}
	})
}

func TestLateConfirmationDoesNotRepeatTheAlert(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		w := newWorld(t, &fake{renew: func(context.Context, engine.Term) engine.Standing {
			if calls.Add(1) == 3 {
				time.Sleep(5 * time.Second) // beyond the alert, within the trust
			}
			return engine.Standing{Health: engine.Held}
		}})
		defer w.stopNow()
		w.mustTry(t, "x", nil)
		time.Sleep(time.Minute)
		if a, c := w.count(Alert), w.count(AlertCleared); a != 1 || c != 1 {
			t.Fatalf("%d alerts, %d cleared for one silence", a, c)
		}
	})
}

func TestManualHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		boom := errors.New("boom")
		w := newWorld(t, &fake{renew: func(context.Context, engine.Term) engine.Standing {
			if broken.Load() {
				return engine.Standing{Err: boom}
			}
			return engine.Standing{Health: engine.Held}
		}})
		defer w.stopNow()
		l := w.mustTry(t, "x", nil)
		time.Sleep(heartbeat / 2)
		if err := l.Renew(t.Context()); err != nil || l.Remaining() != trusted {
			t.Fatalf("err %v, remaining %v", err, l.Remaining())
		}
		broken.Store(true)
		if err := l.Renew(t.Context()); !errors.Is(err, boom) || !l.Held() {
			t.Fatalf("err %v, held %v", err, l.Held())
		}
	})
}

// A heartbeat that somebody asked for and that is not answered ends with the client:
// Close has waited long enough by then.
func TestCloseCutsAManualHeartbeatOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, &fake{renew: func(ctx context.Context, _ engine.Term) engine.Standing {
			hang(ctx)
			return engine.Standing{Err: ctx.Err()}
		}})
		l := w.mustTry(t, "x", nil)
		renewed := make(chan error, 1)
		go func() { renewed <- l.Renew(t.Context()) }()
		synctest.Wait()
		start := time.Now()
		if left := w.stopNow(); len(left) != 1 || time.Since(start) != 0 {
			t.Errorf("closed after %v, left %q", time.Since(start), left)
		}
		if err := <-renewed; !errors.Is(err, context.Canceled) {
			t.Errorf("renewal: %v", err)
		}
	})
}
