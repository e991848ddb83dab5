package advisory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/pgdb"
)

// Acquire implements [engine.Engine].
func (e *store) Acquire(ctx context.Context, batch []engine.Request) []engine.Answer {
	answers := make([]engine.Answer, len(batch))
	for i, r := range batch {
		answers[i] = e.acquire(ctx, r)
	}
	return answers
}

func (e *store) acquire(ctx context.Context, r engine.Request) engine.Answer {
	for {
		s, err := e.session(ctx)
		if err != nil {
			return refusal(err)
		}
		answer, underway, err := s.attempt(ctx, r)
		switch {
		case underway:
			// Noted before the caller can ask to disown the attempt.
			e.doubt(r.Term.ID)
			return engine.Answer{Err: err}
		case errors.Is(err, errRetired):
			continue // nothing was asked
		case err != nil:
			return engine.Answer{Outcome: engine.Failed, Err: err}
		}
		return answer
	}
}

// tooLate takes back what came of an attempt that nobody waits for any more,
// before anything else is done on the session.
func (s *session) tooLate(term engine.Term, late engine.Answer) {
	if late.Outcome != engine.Granted {
		return
	}
	if h := s.table.term(term.ID); h != nil {
		s.giveBack(h)
		s.e.freed(term.Name)
	}
}

// attempt makes one attempt, in serve's goroutine unless it needs no more than a
// try.
func (s *session) attempt(ctx context.Context, r engine.Request) (answer engine.Answer, underway bool, err error) {
	late := func(a engine.Answer) { s.tooLate(r.Term, a) }
	if w, ok := s.borrow(); ok {
		id := engine.NameID(r.Term.Name)
		if try := s.e.sql.try.of(r.Term.Shared); s.ready(id, r) && w.knows(try) {
			s.e.names.put(id, r.Term.Name)
			return once(ctx, s, w, try, []any{id}, isGrant,
				func(rows []row, err error) engine.Answer { return s.contend(id, r, s.tried(id, r, rows, err)) }, late)
		}
		s.repay(nil)
	}
	return ask(ctx, s, false, func() engine.Answer { return s.acquire(r) }, late)
}

// ready tells whether an attempt can begin with its try.
func (s *session) ready(id int64, r engine.Request) bool {
	return s.set == r.Term.StaleAfter && s.label == engine.Label(r.Term.ID) && len(r.Own) == 0 &&
		s.own(id, r.Term.Shared) == nil && s.table.len() < s.limit
}

// acquire makes one attempt.
func (s *session) acquire(r engine.Request) engine.Answer {
	id := engine.NameID(r.Term.Name)
	s.e.names.put(id, r.Term.Name)
	if label := engine.Label(r.Term.ID); s.set != r.Term.StaleAfter || s.label != label {
		// Before the settings: a statement is given less time rather than more.
		s.mu.Lock()
		s.lease = r.Term.StaleAfter
		s.mu.Unlock()
		if err := s.configure(r.Term.StaleAfter.Milliseconds(), label); err != nil {
			return s.failed(err)
		}
		s.set, s.label = r.Term.StaleAfter, label
	}
	for _, own := range r.Own {
		if h := s.table.term(own); h != nil && h.id == id {
			if removal := s.giveBack(h); s.isOver() {
				return engine.Answer{Outcome: engine.Failed, Err: removal.Err}
			}
		}
	}
	if h := s.own(id, r.Term.Shared); h != nil {
		return engine.Answer{Outcome: engine.Busy, Holder: s.ourRival(h), Hinted: true}
	}
	if s.table.len() >= s.limit {
		return engine.Answer{Outcome: engine.Refused, Err: fmt.Errorf("this session holds %d locks, which is half of "+
			"the server's lock table: raise max_locks_per_transaction on the server, or spread the holds over several servers", s.table.len())}
	}
	return s.contend(id, r, s.try(id, r))
}

// contend is the rest of an attempt whose try had that answer.
func (s *session) contend(id int64, r engine.Request, answer engine.Answer) engine.Answer {
	if answer.Outcome != engine.Busy {
		return answer
	}
	// Somebody has the lock: that is certain from now on, and stays the answer
	// even if the session ends on the way to a better one.
	busy := answer
	if r.Wait && s.w.listens() && !s.e.set.pollOnly {
		switch s.wait(id, r.Term.Name) {
		case again:
			answer.RetryIn = markPause
		case already:
			answer.Hinted = true
		case newly:
			// Whoever gave the lock back before our mark was there did not see it.
			if second := s.try(id, r); second.Outcome == engine.Granted {
				return second
			}
			answer.Hinted = true
		}
	}
	answer = s.describe(id, r, answer)
	if s.isOver() {
		return busy
	}
	if answer.Hinted {
		answer.RetryIn = deathPoll/2 + rand.N(deathPoll/2)
	}
	return answer
}

// deathPoll is how often a waiter looks although it will be told of a release: a
// session that ends with its process tells nobody, and the server does not
// either.
const deathPoll = 600 * time.Millisecond

// markPause is how long a waiter waits for somebody to have looked at its mark.
const markPause = 5 * time.Millisecond

// try asks the server once.
func (s *session) try(id int64, r engine.Request) engine.Answer {
	rows, err := s.query(s.e.sql.try.of(r.Term.Shared), id)
	return s.tried(id, r, rows, err)
}

func isGrant(rows []row) bool { return len(rows) == 1 && len(rows[0]) == 1 && rows[0][0] != nil }

// tried takes in what came of a try.
func (s *session) tried(id int64, r engine.Request, rows []row, err error) engine.Answer {
	switch {
	case err != nil && s.isOver():
		return s.failed(err)
	case err != nil:
		// A session lock is not undone with its statement.
		if undone := s.undo(id, r.Term.Shared); undone != nil {
			return s.failed(undone)
		}
		return s.failed(err)
	case len(rows) != 1 || len(rows[0]) != 1:
		s.die(errors.New("the server gave no answer to a try"))
		return s.failed(s.ended)
	case rows[0][0] == nil:
		return engine.Answer{Outcome: engine.Busy}
	}
	at, token, _ := strings.Cut(string(rows[0][0]), " ")
	h := &holding{term: r.Term, id: id, at: moment([]byte(at)), request: r}
	h.term.Token, _ = strconv.ParseInt(token, 10, 64)
	s.mu.Lock()
	s.table.add(h)
	s.mu.Unlock()
	s.stopWaiting(id)
	return engine.Answer{Outcome: engine.Granted, Token: h.term.Token, AcquiredAt: h.at}
}

// undo makes sure that a failed try left no lock behind. Beside other shared
// holds of the key it cannot be told from them.
func (s *session) undo(id int64, shared bool) error {
	if s.table.holder(id) != nil {
		s.die(errors.New("a try for a shared lock failed beside others of the same name"))
		return s.ended
	}
	_, err := s.query(s.e.sql.undo.of(shared), id)
	if err != nil {
		s.die(err)
	}
	return err
}

// failed is the answer to an attempt that certainly holds nothing: the server
// refused it, or the session that it would be held on is no more.
func (s *session) failed(err error) engine.Answer {
	if s.isOver() {
		return engine.Answer{Outcome: engine.Failed, Err: s.ended}
	}
	return refusal(err)
}

// outOfMemory is what the server says when its lock table has no room.
const outOfMemory = "53200"

// refusal judges an error of the server.
func refusal(err error) engine.Answer {
	switch pgdb.Classify(err) {
	case pgdb.Full:
		if pgdb.SQLState(err) != outOfMemory {
			break // the disk is full, or there are too many connections
		}
		err = fmt.Errorf("the server's lock table is full (max_locks_per_transaction): %w", err)
	case pgdb.Denied:
		return engine.Answer{Outcome: engine.Refused, Err: denied{err}}
	case pgdb.ReadOnly, pgdb.Undefined:
		return engine.Answer{Outcome: engine.Refused, Err: err}
	}
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, errClosed) {
		return engine.Answer{Outcome: engine.Refused, Err: err}
	}
	return engine.Answer{Outcome: engine.Failed, Err: err}
}

// denied is an error of the server that says that a right is missing.
type denied struct{ error }

func (d denied) Unwrap() error        { return d.error }
func (d denied) Is(target error) bool { return target == fs.ErrPermission }

// moment reads a time in microseconds; NULL is the zero time.
func moment(text []byte) time.Time {
	if text == nil {
		return time.Time{}
	}
	return time.UnixMicro(number(text)).UTC()
}
