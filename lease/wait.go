package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/pgdb"
)

var errShared = fmt.Errorf("shared locks: the lease engine has none: %w", errors.ErrUnsupported)

// wait turns a failed attempt of a waiter into an answer, after seeing to its
// place in the line. It is not settled when the lock turned out to have become
// free, or to have changed hands, in the meantime.
func (s *store) wait(ctx context.Context, db *pgdb.DB, line *line, r engine.Request, l *look) (engine.Answer, bool) {
	answer := engine.Answer{Outcome: engine.Busy, Holder: l.rival, Place: l.ahead + 1}
	listening := line.joining(r.Term.Name)
	answer.Hinted = listening && (l.open || l.promised)

	known := l.seen != nil && *l.seen < seenEvery && !l.offered
	if !l.open && !l.marked {
		known = false // a holder that does not know of us will wake nobody
	}
	if !known {
		j, err := s.join(ctx, db, r)
		switch {
		case err != nil && pgdb.Classify(err) == pgdb.RowLocked:
			answer.RetryIn, answer.Hinted = soon, false
			return answer, true
		case err != nil && ctx.Err() != nil:
			// That nobody was granted anything is certain all the same.
			return answer, true
		case err != nil:
			return s.notJoined(ctx, db, err, answer), true
		case !j.marked && j.ahead > 0 && line.owes(r.Term.Name):
			// It is theirs, and we see to it that they know. By the time that this
			// is over, somebody holds the lock who knows of us.
			answer.Place, answer.RetryIn = j.ahead+1, soon
			return answer, true
		case !j.marked && !l.open, j.marked && l.open && l.rival == nil:
			return engine.Answer{}, false // released, or taken, since we looked
		}
		answer.Place = j.ahead + 1
		answer.Hinted = answer.Hinted && j.promised
	}
	switch {
	case l.open && line.owes(r.Term.Name):
		answer.RetryIn = soon
	case l.open:
		answer.RetryIn = s.offer(ctx, db, r, l)
	}
	return answer, true
}

// notJoined is the answer to a waiter that could not get a place: a refusal is
// said, and anything else costs it no more than the place.
func (s *store) notJoined(ctx context.Context, db *pgdb.DB, err error, busy engine.Answer) engine.Answer {
	if answer := s.refusal(ctx, db, err); answer.Outcome == engine.Refused {
		return answer
	}
	s.log.DebugContext(ctx, "pgmutex: no place in the line", "error", err)
	busy.Hinted, busy.Place = false, 0
	return busy
}

// offer sees to it that the first in the line knows that the lock may be had, and
// returns when it is our turn to look again.
func (s *store) offer(ctx context.Context, db *pgdb.DB, r engine.Request, l *look) time.Duration {
	if l.left != nil {
		return max(*l.left, 0) + afterOffer
	}
	o, found, err := s.makeOffer(ctx, db, r.Term.Name, l.rival != nil)
	switch {
	case err != nil:
		return soon
	case !found: // nobody is left, or somebody has it already
		return soon
	}
	return o.left + afterOffer
}

type offered struct {
	channel string // empty: the offer stood already
	left    time.Duration
}

func (s *store) makeOffer(ctx context.Context, db *pgdb.DB, name string, standing bool) (offered, bool, error) {
	return single(ctx, db, pgdb.Work, s.sql.offer, []any{name, standing}, func(row pgdb.Row) (o offered, err error) {
		var left int64
		err = row.Scan(&o.channel, &left, nil)
		o.left = max(duration(&left), 0)
		return o, err
	})
}

type joined struct {
	marked   bool // somebody holds the lock and knows now that we wait
	promised bool // and will notify
	ahead    int
}

func (s *store) join(ctx context.Context, db *pgdb.DB, r engine.Request) (joined, error) {
	args := []any{r.Term.Name, s.channel, engine.Label(r.Term.ID)}
	j, _, err := single(ctx, db, pgdb.Work, s.sql.join, args, func(row pgdb.Row) (j joined, err error) {
		var ahead int64
		err = row.Scan(&j.marked, &j.promised, &ahead)
		j.ahead = int(ahead)
		return j, err
	})
	return j, err
}

// rowBusy is for a waiter whose attempt ran into a lock on the row itself: it
// keeps its place as far as that is possible and tries again soon.
func (s *store) rowBusy(ctx context.Context, db *pgdb.DB, line *line, r engine.Request) time.Duration {
	line.joining(r.Term.Name)
	if _, err := s.join(ctx, db, r); err != nil {
		s.log.DebugContext(ctx, "pgmutex: no place in the line", "lock", r.Term.Name, "error", err)
	}
	return rowBusyRetry
}

// rowBusyRetry is longer than a takeover takes and shorter than anybody notices:
// who comes next here is waiting for somebody's transaction to end, of which no
// notification tells.
const rowBusyRetry = 250 * time.Millisecond

// Leave implements [engine.Queuer].
func (s *store) Leave(ctx context.Context, names []string) error {
	db, line, err := s.started()
	if err != nil {
		return err
	}
	// Without a place there is nothing to ask, of a server that may not answer.
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !line.left(name) })
	if len(names) == 0 {
		return nil
	}
	args := []any{array(names, self), s.channel}
	offers, err := query(ctx, db, pgdb.Work, s.sql.leave, args, scanString)
	if err != nil {
		return fmt.Errorf("leave the line: %w", err)
	}
	for _, name := range offers {
		line.wake(name) // it was our turn; let it be somebody else's
	}
	return nil
}

func scanString(row pgdb.Row) (text string, err error) { return text, row.Scan(&text) }
