package local

import (
	"context"
	"fmt"

	"github.com/pgmutex/pgmutex/engine"
)

const askToStop = `UPDATE lock SET stop_by = ?, stop_reason = ? WHERE name = ? AND term = ?`

// ForceRelease implements [engine.Forcer]. The holder learns of it from its next
// renewal, with Now as well.
func (p *process) ForceRelease(ctx context.Context, seen engine.Status, how engine.Force) error {
	return p.update(ctx, func() error {
		r, err := p.db.find(seen.Name)
		switch {
		case err != nil:
			return err
		case r == nil:
			return fmt.Errorf("local: force release of %q: %w", seen.Name, engine.ErrGone)
		case r.term != seen.Term:
			return fmt.Errorf("local: force release of %q: %w", seen.Name, engine.ErrChanged)
		case !how.Now:
			err := p.db.run(askToStop, how.By, how.Reason, r.name, r.term)
			return err
		}
		now := p.now()
		if err := p.db.remove(r, now, engine.EndForced, how.By, how.Reason); err != nil {
			return err
		}
		return p.db.offer(r.name, now)
	})
}
