package memory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pgmutex/pgmutex/engine"
)

// Who Lose blames.
const (
	stranger = "somebody else"
	operator = "operator"
)

// Lose ends the present hold of name, all holds of a shared lock, as if by
// reason, and tells the holders at once unless they are partitioned: those find
// out by their next renewal. It reports whether anybody held name. What it
// leaves behind depends on the reason:
//
//   - LostTakenOver: the lock is held by "somebody else", for the promise of the
//     hold that it replaced; nobody renews that. The history says "taken over".
//   - LostExpired: the row stays and is stale, so the next attempt takes it over.
//   - LostReleased: the lock is free. The history says "forced" by "operator".
//   - LostSessionEnded: the lock is free, and the history says nothing, as with
//     the locks of a session.
//   - LostReadOnly: the row stays with the heartbeat that it had, so the lock is
//     busy until that is stale or the former holder has released it, as where
//     the database can be written again.
//   - LostRowGone and everything else: the lock is free, without a trace.
//
// Where the row stays it can no longer be renewed. Another Lose ends whatever is
// there by then, the hold of "somebody else" included.
func (s *Store) Lose(name string, reason engine.LossReason) bool {
	s.mu.Lock()
	defer s.unlock()
	now := time.Now()
	rows := slices.Clone(s.rows[name])
	for _, r := range rows {
		var how ending
		by := ""
		switch reason {
		case engine.LostTakenOver:
			by = stranger
			how = ending{PastHold: engine.PastHold{End: engine.EndTakenOver, By: by}, listed: true}
		case engine.LostReleased:
			by = operator
			how = ending{PastHold: engine.PastHold{End: engine.EndForced, By: by}, listed: true}
		}
		s.tellLost(r, reason, by)
		switch reason {
		case engine.LostExpired:
			r.ended = reason
			s.touch(r, now.Add(-r.term.StaleAfter-1))
		case engine.LostReadOnly:
			r.ended = reason
		default:
			how.loss = reason
			s.remove(r, now, how)
		}
	}
	if reason == engine.LostTakenOver && len(rows) > 0 {
		s.intrude(now, rows[0])
	}
	s.offer(now, name)
	return len(rows) > 0
}

// intrude lets the stranger hold what r was.
func (s *Store) intrude(now time.Time, r *row) {
	s.token++
	other := &row{
		term: engine.Term{
			Name:       r.term.Name,
			ID:         fmt.Sprintf("%s~%016d", stranger, s.token),
			Token:      s.token,
			StaleAfter: r.term.StaleAfter,
		},
		acquiredAt: now,
		heartbeat:  r.heartbeat,
		alertAfter: r.alertAfter,
	}
	s.touch(other, now)
	s.insert(other)
	if l := s.lines[r.term.Name]; l != nil {
		l.withdraw()
	}
}

// tellLost tells the holder of r, once.
func (s *Store) tellLost(r *row, reason engine.LossReason, by string) {
	if r.ended == "" {
		term := r.term
		s.tell(r.process, func(sink engine.Sink) { sink.Lost(term, reason, by, nil) })
	}
}

// Expire makes the heartbeats of name older than their holders' StaleAfter, so
// that the next attempt takes the lock over; whoever waits is told. The holders
// are not: they learn it from their next renewal, which makes the row fresh
// again if nobody was faster. It reports whether anybody held name.
func (s *Store) Expire(name string) bool {
	s.mu.Lock()
	defer s.unlock()
	now := time.Now()
	for _, r := range s.rows[name] {
		// A heartbeat of its own: a waiter that watches the former one goes by
		// its own clock and would wait it out.
		s.touch(r, now.Add(-r.term.StaleAfter-1))
	}
	s.offer(now, name)
	return len(s.rows[name]) > 0
}

// ForceRelease implements [engine.Forcer]. With Now the holder is told at once,
// unless it is partitioned; without, its next renewal says that it shall stop.
func (p *process) ForceRelease(ctx context.Context, seen engine.Status, how engine.Force) error {
	verdict, got, err := exchange(ctx, p, "", func(now time.Time) error { return p.store.force(now, seen, how) })
	if got != answered {
		return err
	}
	return verdict
}

func (s *Store) force(now time.Time, seen engine.Status, how engine.Force) error {
	r := s.find(seen.Name, seen.Term)
	switch {
	case r == nil && len(s.rows[seen.Name]) == 0:
		return fmt.Errorf("memory: force release of %q: %w", seen.Name, engine.ErrGone)
	case r == nil:
		return fmt.Errorf("memory: force release of %q: %w", seen.Name, engine.ErrChanged)
	case !how.Now:
		r.stop, r.stopBy, r.stopReason = true, how.By, how.Reason
		return nil
	}
	s.tellLost(r, engine.LostReleased, how.By)
	s.remove(r, now, ending{
		PastHold: engine.PastHold{End: engine.EndForced, By: how.By, Reason: how.Reason},
		loss:     engine.LostReleased,
		listed:   true,
	})
	s.offer(now, seen.Name)
	return nil
}
