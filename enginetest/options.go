package enginetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/pgmutex/pgmutex"
)

var optionTests = []test{
	{
		name: "NilAndZeroOptions",
		rule: "Nil and zero options mean the defaults, which fit together; two clients then have different holder labels, which others see.",
		run: func(w *world) {
			one, err := w.h.Client(w.T, nil)
			w.must(err)
			w.closeAfter(one)
			two, err := w.h.Client(w.T, &pgmutex.Options{})
			w.must(err)
			w.closeAfter(two)
			w.check(one.HolderID() != "" && one.HolderID() != two.HolderID(), "labels %q and %q", one.HolderID(), two.HolderID())
			w.check(len([]rune(one.HolderID())) <= 47, "label %q is too long", one.HolderID())
			h, err := one.TryAcquire(w.Context(), "x")
			w.must(err)
			equal(w, "holder", h.Info().Holder, one.HolderID())
			_, err = two.TryAcquire(w.Context(), "x")
			if held := w.held(err); w.can(Inspect) {
				equal(w, "holder as others see it", held.Holder, one.HolderID())
			}
			_, err = one.With(pgmutex.AcquireOptions{}).TryAcquire(w.Context(), "y")
			w.must(err)
			long := w.client(strings.Repeat("ß", 47))
			equal(w, "longest label", w.take(long, "z").Info().Holder, long.HolderID())
		},
	},
	{
		name: "BadOptions",
		rule: "A negative or contradictory option is refused by an error that names the field that the caller set.",
		run: func(w *world) {
			s := w.h.Scale
			for field, cases := range map[string][]pgmutex.Options{
				"StaleAfter":     {{StaleAfter: -1}},
				"Heartbeat":      {{Heartbeat: -1}, {StaleAfter: s, Heartbeat: s}, {StaleAfter: s, Heartbeat: s / 4}},
				"AlertAfter":     {{AlertAfter: -1}, {StaleAfter: s, AlertAfter: s * 2 / 3}, {StaleAfter: s, Heartbeat: s / 20, AlertAfter: s / 11}},
				"PollInterval":   {{PollInterval: -1}},
				"ReleaseTimeout": {{ReleaseTimeout: -1}},
				"MaxHolds":       {{MaxHolds: -1}},
				"HolderID":       {{HolderID: strings.Repeat("x", 48)}, {HolderID: "line\n"}, {HolderID: "bad\xff"}},
				"Namespace":      {{Namespace: "a/b"}, {Namespace: "nul\x00"}, {Namespace: "bad\xff"}},
			} {
				for _, opts := range cases {
					for _, lazy := range []bool{false, true} {
						opts.Lazy = lazy
						c, err := w.h.Client(w.T, &opts)
						if err == nil {
							w.Errorf("%s: %+v was accepted", field, opts)
							w.closeAfter(c)
							continue
						}
						w.check(c == nil, "%s: a client beside the error %v", field, err)
						w.check(mentions(err, field), "%s is not named: %v", field, err)
					}
				}
			}
		},
	},
	{
		name: "BadAcquireOptions",
		rule: "An invalid setting of With is returned by the first acquisition, with the field's name, whatever the method; other methods work.",
		run: func(w *world) {
			a := w.client("a")
			for field, cases := range map[string][]pgmutex.AcquireOptions{
				"Wait":       {{Wait: -2}, {Wait: -time.Second}},
				"StaleAfter": {{StaleAfter: -1}},
				"Details": {
					{Details: map[string]string{"key": strings.Repeat("x", 8<<10)}},
					{Details: map[string]string{"key": "bad\xff"}},
					{Details: map[string]string{"nul\x00": ""}},
				},
			} {
				for _, settings := range cases {
					c := a.With(settings)
					_, try := c.TryAcquire(w.Context(), "x")
					_, acquire := c.Acquire(w.Context(), "x")
					for _, err := range []error{
						try, acquire, c.TryDo(w.Context(), "x", never(w)), c.Run(w.Context(), "x", never(w), nil),
						c.Singleton("x", pgmutex.SkipIfHeld, never(w))(w.Context()),
					} {
						w.check(err != nil && mentions(err, field), "%s is not named: %v", field, err)
						w.differs(err, pgmutex.ErrHeld, pgmutex.ErrUnknown)
					}
					w.check(!c.IsHeld("x") && c.HeldCount() == 0, "something is held")
				}
			}
			w.release(w.take(a, "x"))
		},
	},
	{
		name: "MaxHolds",
		rule: "A client never has more than MaxHolds holds, and says so; what would exceed it is neither held nor unknown.",
		run: func(w *world) {
			a := w.clientWith("a", pgmutex.Options{MaxHolds: 2})
			first := w.take(a, "one")
			w.take(a, "two")
			_, err := a.TryAcquire(w.Context(), "three")
			w.check(err != nil && mentions(err, "MaxHolds"), "a third hold: %v", err)
			w.differs(err, pgmutex.ErrHeld, pgmutex.ErrUnknown)
			_, err = a.Acquire(w.Context(), "three")
			w.check(err != nil && mentions(err, "MaxHolds"), "a third hold: %v", err)
			w.release(first)
			w.take(a, "three")

			b := w.clientWith("b", pgmutex.Options{MaxHolds: 3})
			begin := make(chan struct{})
			var wg sync.WaitGroup
			for i := range 12 {
				wg.Add(1)
				go func() {
					defer wg.Done()
					<-begin
					_, _ = b.TryAcquire(w.Context(), fmt.Sprintf("many-%d", i))
				}()
			}
			close(begin)
			wg.Wait()
			w.check(b.HeldCount() <= 3, "%d holds", b.HeldCount())
		},
	},
	{
		name: "Lazy",
		rule: "A lazy client connects on its first use, whatever that is, and works like any other.",
		run: func(w *world) {
			b := w.client("b")
			lazy := w.clientWith("lazy", pgmutex.Options{Lazy: true})
			w.check(lazy.HeldCount() == 0 && !lazy.IsHeld("x"), "it holds something")
			w.must(lazy.CheckName("x"))
			w.matches(lazy.Release(w.Context(), "x"), pgmutex.ErrNotHeld)
			h := w.take(lazy, "x")
			w.busy(b, "x")
			w.release(h)
			if w.can(Inspect) {
				status, err := w.clientWith("looker", pgmutex.Options{Lazy: true}).Inspect(w.Context(), "x")
				w.must(err)
				equal(w, "state", status.State, pgmutex.StateFree)
			}
			// Started by many at once.
			many := w.clientWith("many", pgmutex.Options{Lazy: true})
			var calls []*call
			for i := range 4 {
				calls = append(calls, acquiring(w.Context(), many.Client, fmt.Sprint(i)))
			}
			for _, c := range calls {
				w.granted(c, "one of many")
			}
		},
	},
	{
		name: "OptionsAreCopied",
		rule: "Options are copied when the client is made.",
		run: func(w *world) {
			opts := &pgmutex.Options{HolderID: "a"}
			a, err := w.h.Client(w.T, opts)
			w.must(err)
			w.closeAfter(a)
			opts.HolderID, opts.Namespace = "changed", "changed"
			h, err := a.TryAcquire(w.Context(), "x")
			w.must(err)
			equal(w, "holder", h.Info().Holder, "a")
			equal(w, "id", h.Info().ID, pgmutex.AdvisoryID("x"))
		},
	},
	{
		name:  "PerHoldTiming",
		rule:  "AcquireOptions.StaleAfter is the hold's own promise, and heartbeat and alert follow it.",
		needs: PerHoldTiming,
		run: func(w *world) {
			a, b := w.client("a"), w.client("b")
			h, err := a.With(pgmutex.AcquireOptions{StaleAfter: w.h.Scale}).TryAcquire(w.Context(), "x")
			w.must(err)
			w.take(a, "y")
			w.check(!h.Deadline().After(time.Now().Add(w.h.Scale)), "deadline %v", time.Until(h.Deadline()))
			if w.can(Inspect) {
				status := w.inspect(b, "x")
				equal(w, "StaleAfter", status.StaleAfter, w.h.Scale)
				w.check(status.AlertAfter < w.h.Scale && status.Heartbeat*2 <= status.AlertAfter, "alert %v, heartbeat %v", status.AlertAfter, status.Heartbeat)
				w.check(w.inspect(b, "y").StaleAfter > w.h.Scale, "the other hold's StaleAfter changed as well")
			}
			w.pass(w.h.Scale*3/2, "it is renewed in time", h.Held)
			w.busy(b, "x")
		},
	},
	{
		name:  "NoPerHoldTiming",
		rule:  "An engine that keeps all holds on one session refuses a StaleAfter of one hold.",
		lacks: PerHoldTiming,
		run: func(w *world) {
			a := w.client("a")
			_, err := a.With(pgmutex.AcquireOptions{StaleAfter: w.h.Scale}).TryAcquire(w.Context(), "x")
			w.matches(err, errors.ErrUnsupported)
			w.differs(err, pgmutex.ErrHeld, pgmutex.ErrUnknown)
			w.release(w.take(a, "x"))
		},
	},
	{
		name:  "Details",
		rule:  "What Details and Annotate give is shown with the hold to everybody, beside host, pid and program; Annotate sees the acquisition's context.",
		needs: Inspect,
		run: func(w *world) {
			a := w.clientWith("a", pgmutex.Options{Annotate: func(ctx context.Context) map[string]string {
				value, _ := ctx.Value(ctxKey{}).(string)
				return map[string]string{"trace": value}
			}})
			b := w.client("b")
			details := map[string]string{"job": "größe \"quoted\" \\ \n", "empty": ""}
			ctx := context.WithValue(w.Context(), ctxKey{}, "abc")
			_, err := a.With(pgmutex.AcquireOptions{Details: details}).TryAcquire(ctx, "x")
			w.must(err)
			for where, got := range map[string]map[string]string{
				"HeldError": w.busy(b, "x").Details,
				"Inspect":   w.inspect(b, "x").Details,
			} {
				equal(w, where+": trace", got["trace"], "abc")
				equal(w, where+": job", got["job"], details["job"])
				_, ok := got["empty"]
				w.check(ok, "%s: an empty detail is missing", where)
				w.check(got["pid"] != "" && got["host"] != "" && got["program"] != "", "%s: %v", where, got)
			}
			w.must(a.TryDo(w.Context(), "y", func(context.Context) error {
				equal(w, "details of another hold", w.busy(b, "y").Details["job"], "")
				return nil
			}))
		},
	},
}

// mentions tells whether an error's message contains text.
func mentions(err error, text string) bool { return strings.Contains(err.Error(), text) }
