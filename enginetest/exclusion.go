package enginetest

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pgmutex/pgmutex"
)

var exclusionTests = []test{
	{
		name: "TwoClientsExclude",
		rule: "While one client holds a name, no other gets it; once it is released, the next one gets it at once.",
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			h := w.take(a, "x")
			w.busy(b, "x")
			w.check(h.Held() && h.Err() == nil, "the hold does not stand: %v", h.Err())
			w.release(h)
			next := w.take(b, "x")
			w.busy(a, "x")
			w.release(next)
		},
	},
	{
		name: "TwoGoroutinesExclude",
		rule: "Two goroutines of one client exclude each other exactly as two processes do.",
		run: func(w *world) {
			a := w.client("a")
			h := w.take(a, "x")
			held := w.busy(a, "x")
			if w.can(Inspect) {
				equal(w, "holder", held.Holder, "a")
			}
			next := w.waiting(w.Context(), a, "x")
			w.check(!isOver(next.done), "a second hold was granted")
			w.release(h)
			w.release(w.granted(next, "the other goroutine"))
		},
	},
	{
		name: "Counter",
		rule: "Work under the lock is never interleaved: a counter without a guard of its own loses no increment, with many goroutines of several clients.",
		run: func(w *world) {
			const clients, goroutines, rounds = 2, 4, 3
			counter := 0
			var inside atomic.Int32
			var wg sync.WaitGroup
			errs := make(chan error, clients*goroutines*(rounds+1))
			for i := range clients {
				c := w.clientWith(fmt.Sprintf("client-%d", i), pgmutex.Options{PollInterval: w.h.Scale / 100})
				for range goroutines {
					wg.Add(1)
					go func() {
						defer wg.Done()
						for range rounds {
							h, err := c.Acquire(w.Context(), "x")
							if err != nil {
								errs <- err
								return
							}
							if inside.Add(1) != 1 {
								errs <- errors.New("two at a time")
							}
							before := counter
							runtime.Gosched()
							counter = before + 1
							inside.Add(-1)
							if err := h.Release(w.Context()); err != nil {
								errs <- err
								return
							}
						}
					}()
				}
			}
			wg.Wait()
			close(errs)
			for err := range errs {
				w.Error(err)
			}
			equal(w, "counter", counter, clients*goroutines*rounds)
		},
	},
	{
		name: "OneOfManyTries",
		rule: "Of many that try at the same moment for a free lock, exactly one gets it.",
		run: func(w *world) {
			const clients, goroutines = 3, 3
			for round := range 3 {
				name := fmt.Sprintf("x%d", round)
				var got atomic.Int32
				var wg sync.WaitGroup
				begin := make(chan struct{})
				for i := range clients {
					c := w.client(fmt.Sprintf("c%d-%d", round, i))
					for range goroutines {
						wg.Add(1)
						go func() {
							defer wg.Done()
							<-begin
							_, err := c.TryAcquire(w.Context(), name)
							if err == nil {
								got.Add(1)
							} else if !errors.Is(err, pgmutex.ErrHeld) {
								w.Errorf("neither granted nor held: %v", err)
							}
						}()
					}
				}
				close(begin)
				wg.Wait()
				equal(w, "grants", got.Load(), 1)
			}
		},
	},
	{
		name: "NamesAreIndependent",
		rule: "Holds of different names do not touch each other, in one client and across clients.",
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			one, two := w.take(a, "one"), w.take(b, "two")
			three := w.take(a, "three")
			equal(w, "holds of a", a.HeldCount(), 2)
			w.busy(b, "one")
			w.busy(a, "two")
			w.release(one)
			w.check(two.Held() && three.Held(), "another hold ended")
			w.busy(b, "three")
			w.release(w.take(b, "one"))
		},
	},
	{
		name: "IsHeldIsLocal",
		rule: "IsHeld and HeldCount speak of this client's holds alone.",
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			w.check(!a.IsHeld("x"), "held before it was taken")
			h := w.take(a, "x")
			w.check(a.IsHeld("x") && a.HeldCount() == 1, "a does not know of its hold")
			w.check(!b.IsHeld("x") && b.HeldCount() == 0, "b claims the hold of a")
			w.check(!a.IsHeld("y"), "another name is held")
			w.release(h)
			w.check(!a.IsHeld("x") && a.HeldCount() == 0, "held after the release")
		},
	},
	{
		name:  "TokensRise",
		rule:  "Each grant of a name has a higher token than every grant before it, whichever client gets it.",
		needs: Tokens,
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			last := int64(0)
			for i := range 6 {
				c := []*client{a, b, b}[i%3]
				h := w.take(c, "x")
				w.check(h.Token() > last, "token %d after %d", h.Token(), last)
				equal(w, "token in Info", h.Info().Token, h.Token())
				last = h.Token()
				w.release(h)
				equal(w, "token after the release", h.Token(), last)
			}
		},
	},
	{
		name:  "NoTokens",
		rule:  "An engine that claims no tokens gives out zero, so that nobody fences by a number that means nothing.",
		lacks: Tokens,
		run: func(w *world) {
			equal(w, "token", w.take(w.client("a"), "x").Token(), 0)
		},
	},
	{
		name: "InfoFacts",
		rule: "Info tells name, id, holder, term and time of the acquisition, and never changes.",
		run: func(w *world) {
			a := w.client("a")
			h := w.take(a, "x")
			info := h.Info()
			equal(w, "name", info.Name, "x")
			equal(w, "Name()", h.Name(), "x")
			equal(w, "id", info.ID, pgmutex.AdvisoryID("x"))
			equal(w, "holder", info.Holder, "a")
			equal(w, "shared", info.Shared, false)
			w.check(info.Engine != "", "no engine name")
			w.check(!info.AcquiredAt.IsZero() && info.AcquiredAt.Location() == time.UTC, "acquired at %v", info.AcquiredAt)
			w.check(len(info.Term) > len("a~") && info.Term[:2] == "a~", "term %q", info.Term)
			w.release(h)
			equal(w, "Info after the release", h.Info(), info)
			again := w.take(a, "x")
			w.check(again.Info().Term != info.Term, "two acquisitions have the term %q", info.Term)
			w.check(!again.Info().AcquiredAt.Before(info.AcquiredAt), "acquired at %v, after %v", again.Info().AcquiredAt, info.AcquiredAt)
		},
	},
}
