package lease

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/pgdb"
)

const (
	// races bounds how often one call tries again because the lock turned out
	// to have become free, or to have changed hands, while it looked.
	races = 4

	// soon is when a waiter tries again after it lost every one of those.
	soon = 20 * time.Millisecond

	// seenEvery is how old the sign of life in the line may become before an
	// attempt renews it. The line passes over whoever has not been seen for 30 s.
	seenEvery = 10 * time.Second

	// afterOffer is how long after the end of an offer the next in line tries.
	afterOffer = 5 * time.Millisecond
)

// errTokens is for a pooler that passes each statement to another server.
var errTokens = errors.New("the order of the tokens could not be established: another server answers each time")

// Acquire implements [engine.Engine].
func (s *store) Acquire(ctx context.Context, batch []engine.Request) []engine.Answer {
	answers := make([]engine.Answer, len(batch))
	db, line, err := s.started()
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	switch {
	case err != nil:
		fillAnswers(answers, engine.Answer{Outcome: engine.Failed, Err: err})
	case len(batch) == 1:
		answers[0] = s.acquire(ctx, db, line, batch[0])
	case len(batch) > 1:
		s.acquireBatch(ctx, db, line, batch, answers)
	}
	return answers
}

// reserve sees to a connection for the renewals of a hold before it is taken, or
// the first of them might find none.
func (s *store) reserve(ctx context.Context, db *pgdb.DB, heartbeat time.Duration) error {
	return db.Reserve(ctx, 3*heartbeat)
}

// acquire makes attempts for one request until one of them has an answer that is
// not out of date already.
func (s *store) acquire(ctx context.Context, db *pgdb.DB, line *line, r engine.Request) engine.Answer {
	if r.Term.Shared {
		return engine.Answer{Outcome: engine.Refused, Err: errShared}
	}
	if err := s.reserve(ctx, db, r.Heartbeat); err != nil {
		return engine.Answer{Outcome: engine.Failed, Err: err}
	}
	if r.Wait && !line.waits(r.Term.Name) && (r.Behind || line.owes(r.Term.Name)) {
		// We hold it ourselves, or others were waiting when we gave it back: only
		// if it turns out to be free is there anything to attempt.
		if answer, settled := s.wait(ctx, db, line, r, &look{promised: true}); settled {
			return answer
		}
	}
	return s.contend(ctx, db, line, r, nil)
}

// contend makes the attempts. The first of them has been sent, or is nil.
func (s *store) contend(ctx context.Context, db *pgdb.DB, line *line, r engine.Request, first *sent) engine.Answer {
	failed := engine.Answer{Outcome: engine.Busy, RetryIn: soon}
	var tookOver *engine.Rival // by a grant that was given back
	for range races {
		known, insert, inLine := s.servers.now(), s.insert, r.Wait && line.waits(r.Term.Name)
		if first != nil {
			known, insert, inLine, first = first.known, first.insert, false, nil
		}
		look, err := s.attempt(ctx, db, r, inLine, insert)
		if err != nil {
			answer := s.refusal(ctx, db, err)
			if answer.Outcome == engine.Busy && r.Wait {
				// The row itself is locked: by a takeover, which ends now, or by
				// a guard or a stranger, which may last.
				answer.RetryIn = s.rowBusy(ctx, db, line, r)
			}
			return answer
		}
		if look.token != nil {
			if known.has(look.server) {
				if r.Wait {
					line.left(r.Term.Name)
				}
				answer := look.granted()
				answer.TookOver = cmp.Or(answer.TookOver, tookOver)
				return answer
			}
			tookOver = cmp.Or(tookOver, look.granted().TookOver)
			if err := s.giveBack(ctx, db, line, r.Term); err != nil {
				return engine.Answer{Outcome: engine.Unknown, Err: err}
			}
			if err := s.raise(ctx, db); err != nil {
				return engine.Answer{Outcome: engine.Failed, Err: err}
			}
			failed = engine.Answer{Outcome: engine.Failed, Err: errTokens}
			continue
		}
		if look.open && !look.queued {
			// It could have been taken, and somebody else did: who, the next
			// attempt tells.
			continue
		}
		if !r.Wait {
			return engine.Answer{Outcome: engine.Busy, Holder: look.rival}
		}
		answer, settled := s.wait(ctx, db, line, r, look)
		if settled {
			return answer
		}
	}
	return failed
}

// Send implements [engine.Sender]: for what insert.sql or acquire.sql alone can
// answer.
func (s *store) Send(r engine.Request) engine.Sent {
	db, line, err := s.started()
	if err != nil || r.Term.Shared || r.Wait && (r.Behind || line.waits(r.Term.Name) || line.owes(r.Term.Name)) {
		return nil
	}
	a := &sent{s: s, db: db, line: line, r: r, known: s.servers.now(), asks: s.taken.has(r.Term.Name)}
	st, args := s.inserting(r)
	if a.asks {
		st, args = s.acquiring(r)
	}
	if a.running = db.Begin(pgdb.Work, st, args); a.running == nil {
		return nil
	}
	return a
}

// sent is an attempt whose first statement has been sent.
type sent struct {
	s       *store
	db      *pgdb.DB
	line    *line
	r       engine.Request
	known   *inOrder
	asks    bool // by acquire.sql, who holds it
	running *pgdb.Running
	look    *look // of the row of the answer, once it has been read
}

// Await implements [engine.Sent]. It waits for a grant by a server whose tokens are
// known to be in order; anything else takes further statements, or may.
func (a *sent) Await(ctx context.Context) bool {
	if !a.running.Wait(ctx) {
		return false
	}
	if row, ok := a.running.Only(); ok {
		_ = a.read(row) // an error comes again
	}
	return a.look != nil && a.look.token != nil && a.known.has(a.look.server)
}

func (a *sent) read(row pgdb.Row) (err error) {
	if a.asks {
		a.look, err = a.s.scanInsert(row)
	} else {
		a.look, err = scanGrant(row)
	}
	return err
}

// Answer implements [engine.Sent].
func (a *sent) Answer(ctx context.Context) engine.Answer {
	return a.s.contend(ctx, a.db, a.line, a.r, a)
}

// insert is the insertion that is under way.
func (a *sent) insert(ctx context.Context, db *pgdb.DB, r engine.Request) (*look, error) {
	err := a.running.Finish(ctx, func(row pgdb.Row) error {
		if a.look != nil {
			return nil
		}
		return a.read(row)
	})
	class := pgdb.Classify(err)
	switch {
	case class == pgdb.Retry, class == pgdb.Canceled:
		return a.s.insert(ctx, db, r) // nothing of it happened
	case err != nil && (class != pgdb.RowLocked || a.asks):
		return nil, err
	}
	a.s.taken.add(r.Term.Name)
	if a.look == nil && !a.asks {
		return a.s.insert(ctx, db, r) // by acquire.sql, which says why
	}
	l := cmp.Or(a.look, &look{})
	l.judge(r)
	return l, nil
}

// giveBack undoes a grant that must not be used. Nobody has heard of it, so it
// leaves no event.
func (s *store) giveBack(ctx context.Context, db *pgdb.DB, line *line, term engine.Term) error {
	waiting, _, err := single(ctx, db, pgdb.Work, s.sql.release, []any{term.Name, term.ID, false, int64(0)}, scanBool)
	if err == nil && waiting {
		line.wake(term.Name)
	}
	return err
}

func scanBool(row pgdb.Row) (b bool, err error) { return b, row.Scan(&b) }
