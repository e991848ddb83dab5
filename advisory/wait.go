package advisory

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// What became of a wish to be woken up.
type waiting int

const (
	again waiting = iota // somebody is looking at the mark: try again soon
	newly                // we were not waiting before
	already
)

// wait marks the key as waited for and listens on its channel.
func (s *session) wait(id int64, name string) waiting {
	if _, ok := s.marks[id]; ok {
		return already
	}
	rows, err := s.query(s.e.sql.mark, markOf(id))
	switch {
	case s.isOver():
		return again
	case err != nil:
		s.unmark(id) // it may have been set all the same
		return again
	case len(rows) != 1 || !truth(rows[0][0]):
		return again
	}
	if err := s.command("LISTEN " + pgx.Identifier{channelOf(id)}.Sanitize()); err != nil {
		if !s.isOver() {
			s.unmark(id)
		}
		return again
	}
	s.marks[id] = name
	return newly
}

// stopWaiting takes the mark back, after whatever is being answered.
func (s *session) stopWaiting(id int64) {
	if _, ok := s.marks[id]; !ok {
		return
	}
	delete(s.marks, id)
	s.later(func() {
		if _, ok := s.marks[id]; ok {
			s.unmark(id) // one of two: somebody waits anew
			return
		}
		s.unmark(id)
		_ = s.command("UNLISTEN " + pgx.Identifier{channelOf(id)}.Sanitize())
	})
}

func (s *session) unmark(id int64) {
	if _, err := s.query(s.e.sql.unmark, markOf(id)); err != nil {
		s.die(err)
	}
}

// command runs what cannot be prepared.
func (s *session) command(text string) error {
	if s.isOver() {
		return s.ended
	}
	err := s.w.command(s.bound(), text)
	if err != nil && s.w.closed() {
		s.die(err)
	}
	return err
}

// Leave implements [engine.Queuer]. There is no order among the waiters of
// different clients; what is given up is the wish to be woken up.
func (e *store) Leave(ctx context.Context, names []string) error {
	s := e.current()
	if s == nil {
		return nil
	}
	_, _, err := ask(ctx, s, false, func() struct{} {
		for id, name := range s.marks {
			for _, n := range names {
				if n == name {
					s.stopWaiting(id)
				}
			}
		}
		return struct{}{}
	}, nil)
	return err
}
