package memory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pgmutex/pgmutex/engine"
)

// Renew implements [engine.Engine]. A row that is stale but was not taken over
// is fresh again afterwards.
func (p *process) Renew(ctx context.Context, batch []engine.Term) []engine.Standing {
	return p.standings(ctx, batch, func(now time.Time, term engine.Term, r *row) {
		p.store.touch(r, now)
		if term.StaleAfter > 0 {
			r.term.StaleAfter = term.StaleAfter
		}
	})
}

// Explain implements [engine.Engine].
func (p *process) Explain(ctx context.Context, batch []engine.Term) []engine.Standing {
	return p.standings(ctx, batch, func(time.Time, engine.Term, *row) {})
}

// standings tells how the terms stand, after each has been given to held if it
// does.
func (p *process) standings(ctx context.Context, batch []engine.Term, held func(time.Time, engine.Term, *row)) []engine.Standing {
	if len(batch) == 0 {
		return nil
	}
	batch = slices.Clone(batch)
	standings, got, err := exchange(ctx, p, labelOf(batch[0].ID), func(now time.Time) []engine.Standing {
		standings := make([]engine.Standing, len(batch))
		for i, term := range batch {
			if r := p.store.find(term.Name, term.ID); r != nil && r.ended == "" {
				held(now, term, r)
				standings[i] = engine.Standing{Health: engine.Held, Stop: r.stop, StopBy: r.stopBy}
			} else {
				standings[i] = p.store.whyGone(term, r)
			}
		}
		return standings
	})
	if got != answered {
		return slices.Repeat([]engine.Standing{{Health: engine.Unclear, Err: err}}, len(batch))
	}
	return standings
}

// whyGone explains a term that does not stand any more; r is its row if that
// outlived it. A term without a trace is one that nobody knows the end of. One
// that its own holder released has no reason.
func (s *Store) whyGone(term engine.Term, r *row) engine.Standing {
	if r != nil {
		return engine.Standing{Health: engine.Gone, Reason: r.ended}
	}
	if e := s.past.byID[term.ID]; e != nil && e.Name == term.Name {
		return engine.Standing{Health: engine.Gone, Reason: e.loss, By: e.lossBy}
	}
	return engine.Standing{Health: engine.Gone, Reason: engine.LostRowGone}
}

// Release implements [engine.Engine].
func (p *process) Release(ctx context.Context, batch []engine.Term) []engine.Removal {
	if len(batch) == 0 {
		return nil
	}
	batch = slices.Clone(batch)
	removals, got, err := exchange(ctx, p, labelOf(batch[0].ID), func(now time.Time) []engine.Removal {
		s := p.store
		removals := make([]engine.Removal, len(batch))
		for i, term := range batch {
			removals[i].Outcome = engine.Absent
			if r := s.find(term.Name, term.ID); r != nil {
				s.remove(r, now, released(r))
				s.offer(now, term.Name)
				removals[i].Outcome = engine.Removed
			}
		}
		return removals
	})
	if got != answered {
		return slices.Repeat([]engine.Removal{{Outcome: engine.Unconfirmed, Err: err}}, len(batch))
	}
	return removals
}

// Guard implements [engine.Guarder] from the store's own state: there is no
// transaction here to tie the term to, so exec is never called and may be nil,
// and nobody is kept from taking over once Guard has returned.
func (p *process) Guard(ctx context.Context, term engine.Term, _ engine.Exec) error {
	held, got, err := exchange(ctx, p, labelOf(term.ID), func(time.Time) bool {
		r := p.store.find(term.Name, term.ID)
		return r != nil && r.ended == ""
	})
	switch {
	case got != answered:
		return err
	case !held:
		return fmt.Errorf("memory: guard of %q: %w", term.Name, engine.ErrGone)
	}
	return nil
}
