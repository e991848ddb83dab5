package local

import (
	"context"
	"slices"

	"github.com/pgmutex/pgmutex/engine"
)

const renewRow = `UPDATE lock SET boot = ?, beat = beat + 1, beat_at = ?, beat_wall = ?,
	stale_after = CASE WHEN ? > 0 THEN ? ELSE stale_after END
	WHERE name = ? AND term = ? RETURNING stop_by IS NOT NULL, coalesce(stop_by, '')`

// Renew implements [engine.Engine], in one transaction. A row that is stale but
// was not taken over is fresh again afterwards.
func (p *process) Renew(ctx context.Context, batch []engine.Term) []engine.Standing {
	if len(batch) == 0 {
		return nil
	}
	standings := make([]engine.Standing, len(batch))
	err := p.update(ctx, func() error {
		now := p.now()
		for i, term := range batch {
			stale := int64(term.StaleAfter)
			s := engine.Standing{Health: engine.Held}
			found, err := p.db.row(renewRow, now.boot, int64(now.at), now.wall.UnixNano(), stale, stale,
				term.Name, term.ID).found(&s.Stop, &s.StopBy)
			if err == nil && !found {
				s, err = p.db.whyGone(term)
			}
			if err != nil {
				return err
			}
			standings[i] = s
		}
		return nil
	})
	return orUnclear(standings, err)
}

// Explain implements [engine.Engine].
func (p *process) Explain(ctx context.Context, batch []engine.Term) []engine.Standing {
	if len(batch) == 0 {
		return nil
	}
	standings := make([]engine.Standing, len(batch))
	err := p.view(ctx, func() error {
		for i, term := range batch {
			r, err := p.db.find(term.Name)
			switch {
			case err != nil:
				return err
			case r != nil && r.term == term.ID:
				standings[i] = engine.Standing{Health: engine.Held, Stop: r.stopBy.Valid, StopBy: r.stopBy.String}
				continue
			}
			if standings[i], err = p.db.whyGone(term); err != nil {
				return err
			}
		}
		return nil
	})
	return orUnclear(standings, err)
}

func orUnclear(standings []engine.Standing, err error) []engine.Standing {
	if err == nil {
		return standings
	}
	return slices.Repeat([]engine.Standing{{Health: engine.Unclear, Err: err}}, len(standings))
}

// Release implements [engine.Engine], in one transaction.
func (p *process) Release(ctx context.Context, batch []engine.Term) []engine.Removal {
	if len(batch) == 0 {
		return nil
	}
	removals := make([]engine.Removal, len(batch))
	err := p.update(ctx, func() error {
		now := p.now()
		for i, term := range batch {
			r, err := p.db.find(term.Name)
			if err != nil {
				return err
			}
			removals[i] = engine.Removal{Outcome: engine.Absent}
			if r == nil || r.term != term.ID {
				continue
			}
			if err := p.db.released(r, now); err != nil {
				return err
			}
			if err := p.db.offer(r.name, now); err != nil {
				return err
			}
			removals[i].Outcome = engine.Removed
		}
		return nil
	})
	if err != nil {
		return slices.Repeat([]engine.Removal{{Outcome: engine.Unconfirmed, Err: err}}, len(batch))
	}
	return removals
}
