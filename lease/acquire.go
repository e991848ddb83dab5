package lease

import (
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
	failed := engine.Answer{Outcome: engine.Busy, RetryIn: soon}
	if r.Wait && !line.waits(r.Term.Name) && (r.Behind || line.owes(r.Term.Name)) {
		// We hold it ourselves, or others were waiting when we gave it back: only
		// if it turns out to be free is there anything to attempt.
		if answer, settled := s.wait(ctx, db, line, r, &look{promised: true}); settled {
			return answer
		}
	}
	for range races {
		known := s.servers.now()
		look, err := s.attempt(ctx, db, r, r.Wait && line.waits(r.Term.Name))
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
				return look.granted()
			}
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
