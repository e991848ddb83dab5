package keeper

import (
	"context"
	"time"

	"github.com/pgmutex/pgmutex/engine"
)

// alertAfter returns after how long without a heartbeat a contender tells
// somebody about the holder: our own setting, but never less than two of the
// heartbeats that the holder promised, or a slow one would be reported for
// ever.
func alertAfter(ask *Ask, r *engine.Rival) time.Duration {
	return max(ask.Timing.AlertAfter, 2*r.Interval)
}

func ageOf(r *engine.Rival) time.Duration {
	if r == nil {
		return 0
	}
	return max(r.Age, 0)
}

// rivalAlert raises or clears the alert about the holder of a name, once for
// each of its holds, however many goroutines here look at it.
func (k *Keeper) rivalAlert(ctx context.Context, ask *Ask, r *engine.Rival, age time.Duration) {
	if r == nil {
		return
	}
	late := age >= alertAfter(ask, r)
	k.mu.Lock()
	about := k.alerted[ask.Name]
	switch {
	case !late:
		delete(k.alerted, ask.Name)
	case about == nil || about.ID != r.ID:
		k.alerted[ask.Name] = r
	default:
		k.mu.Unlock()
		return // told already
	}
	k.mu.Unlock()
	k.alertCleared(ctx, ask.Name, about)
	if late {
		k.cfg.Observe(Event{Kind: Alert, Ctx: context.WithoutCancel(ctx), Term: engine.Term{Name: ask.Name}, Rival: r, Age: age})
	}
}

// clearAlert clears the alert about a name's former holder, if one stands.
func (k *Keeper) clearAlert(ctx context.Context, name string) {
	k.mu.Lock()
	about := k.alerted[name]
	delete(k.alerted, name)
	k.mu.Unlock()
	k.alertCleared(ctx, name, about)
}

// alertCleared reports the end of the alert about a holder, nil for none.
func (k *Keeper) alertCleared(ctx context.Context, name string, about *engine.Rival) {
	if about != nil {
		k.cfg.Observe(Event{Kind: AlertCleared, Ctx: context.WithoutCancel(ctx), Term: engine.Term{Name: name}, Rival: about})
	}
}

// observe reports something about an attempt.
func (k *Keeper) observe(ctx context.Context, ask *Ask, kind Kind, l look) {
	k.cfg.Observe(Event{
		Kind: kind, Ctx: context.WithoutCancel(ctx),
		Term:  engine.Term{Name: ask.Name, Shared: ask.Shared},
		Rival: l.Holder, Age: ageOf(l.Holder), Place: l.Place, Try: !ask.Wait, Limit: ask.Limit,
	})
}

// report says that an Ask was granted. Its failure is reported by the client,
// which makes the error.
func (k *Keeper) report(ctx context.Context, ask *Ask, res Result, began time.Time, took time.Duration) {
	l := res.Lease
	if l == nil {
		return
	}
	k.clearAlert(ctx, l.term.Name)
	event := l.event(TakenOver)
	event.Try, event.Limit = !ask.Wait, ask.Limit
	event.At, event.Took, event.Rival, event.Age = began, took, res.Rival, ageOf(res.Rival)
	if res.Rival != nil {
		k.cfg.Observe(event)
	}
	event.Kind = Acquired
	k.cfg.Observe(event)
}
