package lease

import (
	"context"
	"errors"
	"fmt"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/pgdb"
)

// ForceRelease implements [engine.Forcer]. Without Now the holder is asked to
// stop and reads that with its next renewal; a holder of the Python package
// cannot be asked, which is an error that matches errors.ErrUnsupported.
func (s *store) ForceRelease(ctx context.Context, seen engine.Status, how engine.Force) error {
	db, line, err := s.started()
	if err != nil {
		return err
	}
	if seen.Term == "" {
		return fmt.Errorf("%q: %w", seen.Name, engine.ErrGone)
	}
	st := s.sql.forceStop
	if how.Now {
		st = s.sql.forceRemove
	}
	args := []any{seen.Name, seen.Term, noZero(how.By), noZero(how.Reason)}
	answer, found, err := single(ctx, db, pgdb.Work, st, args, scanBool)
	switch {
	case err != nil && pgdb.Classify(err) == pgdb.RowLocked:
		return fmt.Errorf("%q: a transaction guards the hold or is changing it; try again: %w", seen.Name, err)
	case err != nil:
		return s.explain(ctx, db, err)
	case !found:
		return s.missed(ctx, db, seen)
	case how.Now && answer:
		line.wake(seen.Name)
	case !how.Now && !answer:
		return fmt.Errorf("%q: its holder does not read requests to stop: %w", seen.Name, errors.ErrUnsupported)
	}
	return nil
}

// missed says why the term that was shown is not there any more.
func (s *store) missed(ctx context.Context, db *pgdb.DB, seen engine.Status) error {
	holder, found, err := single(ctx, db, pgdb.Work, s.sql.holder, []any{seen.Name}, scanString)
	switch {
	case err != nil:
		return s.explain(ctx, db, err)
	case found:
		return fmt.Errorf("%q is now held by %s: %w", seen.Name, engine.Label(holder), engine.ErrChanged)
	}
	return fmt.Errorf("%q: %w", seen.Name, engine.ErrGone)
}
