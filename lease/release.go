package lease

import (
	"context"
	"math/rand/v2"
	"strconv"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/pgdb"
)

// Release implements [engine.Engine]. Whoever waits for one of the names is
// woken afterwards, off the caller's path. A term whose row somebody has locked,
// its own guard for example, is Unconfirmed.
func (s *store) Release(ctx context.Context, batch []engine.Term) []engine.Removal {
	removals := make([]engine.Removal, len(batch))
	db, line, err := s.started()
	if err != nil {
		for i := range removals {
			removals[i].Err = err
		}
		return removals
	}
	var wake []string
	left := indexes(len(batch))
	if len(batch) > 1 {
		if left, wake, err = s.releaseBatch(ctx, db, batch, removals); err != nil {
			for i := range removals {
				removals[i] = engine.Removal{Err: s.explain(ctx, db, err)}
			}
			return removals
		}
	}
	for _, i := range left {
		var waiting bool
		if removals[i], waiting = s.releaseOne(ctx, db, batch[i]); waiting {
			wake = append(wake, batch[i].Name)
		}
	}
	if wake != nil {
		line.wake(wake...)
	}
	s.prune(db, len(batch))
	return removals
}

// noted reports whether the end of a term is written down: not that of an
// attempt whose grant nobody has heard of, which has no token.
func noted(t engine.Term) bool { return t.Token != 0 }

// releaseBatch fills in what became of the terms and returns those that were
// locked, and the names that others wait for.
func (s *store) releaseBatch(ctx context.Context, db *pgdb.DB, batch []engine.Term, removals []engine.Removal) (left []int, wake []string, err error) {
	type fate struct {
		n       int64
		waiting *bool // nil: not removed
		there   bool  // when the statement began
	}
	args := []any{
		array(batch, termName), array(batch, termID), array(batch, termToken),
		notation(batch, func(t engine.Term) string { return strconv.FormatBool(noted(t)) }),
	}
	fates, err := query(ctx, db, pgdb.Work, s.sql.releaseBatch, args, func(row pgdb.Row) (f fate, err error) {
		return f, row.Scan(&f.n, &f.waiting, &f.there)
	})
	if err != nil {
		return nil, nil, err
	}
	for _, f := range fates {
		i := int(f.n - 1)
		switch {
		case f.waiting != nil:
			s.taken.remove(batch[i].Name)
			removals[i].Outcome = engine.Removed
			if *f.waiting {
				wake = append(wake, batch[i].Name)
			}
		case f.there:
			left = append(left, i)
		default:
			removals[i].Outcome = engine.Absent
			if noted(batch[i]) {
				wake = append(wake, batch[i].Name)
			}
		}
	}
	return left, wake, nil
}

func (s *store) releaseOne(ctx context.Context, db *pgdb.DB, term engine.Term) (engine.Removal, bool) {
	if ctx.Err() != nil {
		return engine.Removal{Err: context.Cause(ctx)}, false
	}
	args := []any{term.Name, term.ID, noted(term), term.Token}
	waiting, found, err := single(ctx, db, pgdb.Work, s.sql.release, args, scanBool)
	switch {
	case err != nil:
		return engine.Removal{Err: s.explain(ctx, db, err)}, false
	case !found:
		// It may have been ours: a release whose answer was lost. The mark is gone with
		// it, and those who wait have not been woken.
		return engine.Removal{Outcome: engine.Absent}, noted(term)
	}
	s.taken.remove(term.Name)
	return engine.Removal{Outcome: engine.Removed}, waiting
}

// One release in pruneEvery is followed by a look for what is out of date: old
// events and abandoned places. That is how programs that live for one lock only
// clean up as well as servers do. A look removes up to 1,000 events, five times
// as many as are made between two of them.
const pruneEvery = 200

// prune starts such a look, off the path of everybody.
func (s *store) prune(db *pgdb.DB, released int) {
	if rand.IntN(pruneEvery) >= released || !s.pruning.TryLock() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		s.pruning.Unlock()
		return
	}
	s.tasks.Add(1)
	go func() {
		defer s.tasks.Done()
		defer s.pruning.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), closeBound)
		defer cancel()
		s.pruneNow(ctx, db)
	}()
}

func (s *store) pruneNow(ctx context.Context, db *pgdb.DB) {
	for _, st := range []pgdb.Statement{s.sql.pruneEvents, s.sql.pruneWaiters} {
		if err := db.Run(ctx, pgdb.Work, st, nil, func(pgdb.Row) error { return nil }); err != nil {
			s.log.DebugContext(ctx, "pgmutex: could not clean up", "error", err)
			return
		}
	}
}
