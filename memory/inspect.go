package memory

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/pgmutex/pgmutex/engine"
)

// List implements [engine.Inspector]. Each holder of a shared lock is a status
// of its own. What it yields is the store at one moment, that of the first step.
func (p *process) List(ctx context.Context) iter.Seq2[engine.Status, error] {
	return sequence(func() ([]engine.Status, error) {
		list, _, err := exchange(ctx, p, "", func(now time.Time) []engine.Status {
			var list []engine.Status
			for _, name := range slices.Sorted(maps.Keys(p.store.rows)) {
				for _, r := range p.store.rows[name] {
					list = append(list, p.store.status(now, name, r))
				}
			}
			return list
		})
		return list, err
	})
}

// Inspect implements [engine.Inspector]. Of several shared holders it shows the
// one that has the most time left.
func (p *process) Inspect(ctx context.Context, name string) (engine.Status, error) {
	status, _, err := exchange(ctx, p, "", func(now time.Time) engine.Status {
		var last *row
		if rows := p.store.rows[name]; len(rows) > 0 {
			last = slices.MaxFunc(rows, func(a, b *row) int { return cmp.Compare(a.left(now), b.left(now)) })
		}
		return p.store.status(now, name, last)
	})
	return status, err
}

// status shows r, or a free lock if r is nil.
func (s *Store) status(now time.Time, name string, r *row) engine.Status {
	status := engine.Status{Name: name, ID: lockID(name), Engine: "memory", State: engine.StateFree}
	if l := s.lines[name]; l != nil {
		for _, t := range l.tickets {
			if !t.passed {
				status.Waiters++
			}
		}
	}
	if r == nil {
		return status
	}
	status.State = engine.StateHeld
	switch age := r.age(now); {
	case r.stale(now):
		status.State = engine.StateStale
	case r.alertAfter > 0 && age > r.alertAfter:
		status.State = engine.StateLate
	}
	status.Holder = labelOf(r.term.ID)
	status.Term = r.term.ID
	status.Token = r.term.Token
	status.Shared = r.term.Shared
	status.Since = wall(r.acquiredAt)
	status.HeartbeatAge = r.age(now)
	status.Remaining = max(0, r.left(now))
	status.Heartbeat = r.heartbeat
	status.AlertAfter = r.alertAfter
	status.StaleAfter = r.term.StaleAfter
	status.StopAsked = r.stop
	status.Details = maps.Clone(r.details)
	return status
}

// History implements [engine.Inspector]. The store keeps at least the latest
// 10,000 endings.
func (p *process) History(ctx context.Context, name string) iter.Seq2[engine.PastHold, error] {
	return sequence(func() ([]engine.PastHold, error) {
		list, _, err := exchange(ctx, p, "", func(time.Time) []engine.PastHold {
			var list []engine.PastHold
			for _, e := range slices.Backward(p.store.past.all) {
				if e.listed && (name == "" || e.Name == name) {
					list = append(list, e.PastHold)
				}
			}
			return list
		})
		return list, err
	})
}

// sequence yields what get returns, or its error; each range asks anew.
func sequence[T any](get func() ([]T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		list, err := get()
		if err != nil {
			var none T
			yield(none, err)
			return
		}
		for _, v := range list {
			if !yield(v, nil) {
				return
			}
		}
	}
}
