package enginetest

import (
	"github.com/pgmutex/pgmutex"
)

var alertTests = []test{
	{
		name:  "AlertThenTakeover",
		rule:  "An observer is alerted once about a silent holder, told when that is over, and told whom it took over from.",
		needs: Durable | Inspect | canKill,
		run: func(w *world) {
			a, b := w.mortal("a"), w.clientWith("b", pgmutex.Options{
				StaleAfter: w.h.Scale, PollInterval: w.h.Scale / 50,
			})
			h := w.take(a, "x")
			w.h.Faulter.Kill(w.T, a.Client)
			waiter := w.waiting(w.Context(), b, "x")
			next := w.granted(waiter, "b")
			w.event(b, "Acquired")
			var order []string
			for _, n := range b.rec.of("Alert", "AlertCleared", "TakenOver", "Acquired") {
				order = append(order, n.kind)
			}
			if len(order) != 4 || order[0] != "Alert" || order[1] != "AlertCleared" || order[2] != "TakenOver" || order[3] != "Acquired" {
				w.Errorf("events in the order %v", order)
			}
			alert := w.event(b, "Alert")
			equal(w, "silent holder", alert.Rival, "a")
			equal(w, "name", alert.Info.Name, "x")
			equal(w, "id", alert.Info.ID, h.Info().ID)
			w.check(alert.Age >= w.h.Scale/3, "alerted after %s", alert.Age)
			taken := w.event(b, "TakenOver")
			equal(w, "previous holder", taken.Rival, "a")
			equal(w, "the hold taken", taken.Info, next.Info())
			w.check(taken.Age >= w.h.Scale, "taken over after a silence of %s", taken.Age)
		},
	},
	{
		name:  "OneAlertPerHoldAndObserver",
		rule:  "However often and from however many goroutines an observer looks, a silent hold alerts it once; each observer has its own alert.",
		needs: Durable | Inspect | canKill,
		run: func(w *world) {
			silent := pgmutex.Options{StaleAfter: 6 * w.h.Scale, AlertAfter: w.h.Scale, Heartbeat: w.h.Scale / 10}
			a := w.clientWith("a", silent)
			observer := pgmutex.Options{StaleAfter: 6 * w.h.Scale, AlertAfter: w.h.Scale, Heartbeat: w.h.Scale / 10, PollInterval: w.h.Scale / 20}
			b, c := w.clientWith("b", observer), w.clientWith("c", observer)
			w.take(a, "x")
			w.h.Faulter.Kill(w.T, a.Client)
			w.waiting(w.Context(), b, "x")
			acquiring(w.Context(), b.Client, "x")
			w.until("both to be alerted", func() bool {
				w.busy(c, "x")
				return b.rec.count("Alert") > 0 && c.rec.count("Alert") > 0
			})
			w.pass(w.h.Scale/2, "one alert each", func() bool {
				w.busy(b, "x")
				w.busy(c, "x")
				return b.rec.count("Alert") == 1 && c.rec.count("Alert") == 1
			})
			equal(w, "cleared", b.rec.count("AlertCleared")+c.rec.count("AlertCleared"), 0)
		},
	},
	{
		name:  "AlertIsCleared",
		rule:  "When a silent holder is heard of again, or lets go, the alert is cleared once.",
		needs: Durable | Inspect | canKill | canHold,
		run: func(w *world) {
			// The holder alone knows that its heartbeats do not get through: the
			// requests arrive, so others hear of it all the time.
			a := w.clientWith("a", pgmutex.Options{StaleAfter: 12 * w.h.Scale, AlertAfter: w.h.Scale, Heartbeat: w.h.Scale / 10})
			h := w.take(a, "x")
			release := w.h.Faulter.HoldReplies(w.T, a.Client)
			defer release()
			alert := w.event(a, "Alert")
			equal(w, "rival", alert.Rival, "")
			equal(w, "hold", alert.Info, h.Info())
			w.check(alert.Age >= w.h.Scale, "alerted after %s", alert.Age)
			release()
			cleared := w.event(a, "AlertCleared")
			equal(w, "hold", cleared.Info, h.Info())
			w.check(h.Held(), "the hold was lost: %v", h.Err())
			w.release(h)
			w.event(a, "Released")
			equal(w, "alerts", a.rec.count("Alert"), 1)
			equal(w, "cleared", a.rec.count("AlertCleared"), 1)
		},
	},
	{
		name:  "NoAlertAboutTheLiving",
		rule:  "A holder that is heard of in time is never reported, even if its heartbeat is slower than the observer's AlertAfter.",
		needs: Durable,
		run: func(w *world) {
			a := w.clientWith("a", pgmutex.Options{StaleAfter: 20 * w.h.Scale, Heartbeat: w.h.Scale})
			b := w.clientWith("b", pgmutex.Options{StaleAfter: w.h.Scale, PollInterval: w.h.Scale / 20})
			h := w.take(a, "x")
			w.waiting(w.Context(), b, "x")
			w.pass(w.h.Scale*3/2, "no alert", func() bool { return b.rec.count("Alert") == 0 && h.Held() })
		},
	},
}
