package advisory

import (
	"context"
	"errors"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/pgdb"
)

var errNotOwned = errors.New("the server says that this session did not hold a lock that it was given")

// Release implements [engine.Engine].
func (e *store) Release(ctx context.Context, batch []engine.Term) []engine.Removal {
	removals := make([]engine.Removal, len(batch))
	s := e.current()
	for i, term := range batch {
		if s == nil {
			removals[i] = e.absent(term)
			continue
		}
		removal, underway, err := s.dismiss(ctx, term)
		switch {
		case underway:
			removals[i].Err = err
		case errors.Is(err, errNotAsked):
			removals[i].Err = err
		case err != nil: // the session has ended in the meantime
			removals[i] = e.absent(term)
			if removals[i].Outcome == engine.Absent {
				removals[i] = engine.Removal{Err: err}
			}
		default:
			removals[i] = removal
		}
	}
	return removals
}

// dismiss gives one term back, in serve's goroutine unless it needs no more than one
// statement.
func (s *session) dismiss(ctx context.Context, term engine.Term) (removal engine.Removal, underway bool, err error) {
	if w, ok := s.borrow(); ok {
		h, unlock := s.table.term(term.ID), s.e.sql.unlock.of(term.Shared)
		if h != nil && h.term.Shared == term.Shared && w.knows(unlock) {
			s.drop(h)
			return once(ctx, s, w, unlock, []any{h.id, markOf(h.id)}, isUnlock,
				func(rows []row, err error) engine.Removal { return s.unlocked(h, rows, err) }, nil)
		}
		s.repay(nil)
	}
	return ask(ctx, s, false, func() engine.Removal { return s.release(term) }, nil)
}

// release gives one term back.
func (s *session) release(term engine.Term) engine.Removal {
	h := s.table.term(term.ID)
	if h == nil {
		return s.e.absent(term)
	}
	return s.giveBack(h)
}

// giveBack unlocks. Everything but a proven unlock ends the session, and with it
// every lock on it: otherwise a lock could stay behind that nobody knows of.
func (s *session) giveBack(h *holding) engine.Removal {
	s.drop(h)
	rows, err := s.query(s.e.sql.unlock.of(h.term.Shared), h.id, markOf(h.id))
	return s.unlocked(h, rows, err)
}

// drop takes a hold off the table, before its lock is given back.
func (s *session) drop(h *holding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table.remove(h)
}

func isUnlock(rows []row) bool {
	return len(rows) == 1 && len(rows[0]) == 1 && number(rows[0][0]) != 0
}

// unlocked takes in what came of an unlock.
func (s *session) unlocked(h *holding, rows []row, err error) engine.Removal {
	defer s.unshow(h)
	switch {
	case err != nil && !s.isOver() && !pgdb.Sent(err) && s.table.holder(h.id) == nil:
		// The server refused something, perhaps the look at the mark for want of
		// memory. Whatever it had done by then, after this the lock is not held.
		if err := s.undo(h.id, h.term.Shared); err != nil {
			return engine.Removal{Err: s.ended}
		}
		s.later(func() { s.notify(h.id) })
	case err != nil:
		s.die(err)
		return engine.Removal{Err: s.ended}
	case !isUnlock(rows):
		s.die(errNotOwned)
		return engine.Removal{Outcome: engine.Absent}
	case number(rows[0][0]) == 2:
		s.later(func() { s.notify(h.id) })
	}
	return engine.Removal{Outcome: engine.Removed}
}

// later does something after what is being answered.
func (s *session) later(fn func()) { s.submit(&op{run: fn, done: make(chan struct{})}, true) }

// notify wakes up who waits elsewhere. Where that fails they poll.
func (s *session) notify(id int64) { _, _ = s.query(s.e.sql.notify, id) }

// absent is what became of a term that is not on the session. Of an attempt that
// was left in doubt it is certain by now that it left nothing: the session does
// one thing after the other.
func (e *store) absent(term engine.Term) engine.Removal {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, ok := e.doubts[term.ID]; ok {
		delete(e.doubts, term.ID)
		return engine.Removal{Outcome: engine.Removed}
	}
	return engine.Removal{Outcome: engine.Absent}
}

// doubt notes an attempt that was answered with Unknown; it is disowned later.
func (e *store) doubt(termID string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.doubts[termID] = struct{}{}
}
