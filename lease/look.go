package lease

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/pgdb"
)

// look is what one attempt showed.
type look struct {
	// A grant: token is nil without one.
	token      *int64
	acquiredAt time.Time
	replaced   string // the term that was taken over
	server     int64  // that answered, by its start

	rival    *engine.Rival // who stood there when the statement began
	promised bool          // the rival is one of ours, which notifies
	own      bool          // the rival is an attempt of this client's
	marked   bool          // the rival knows that somebody waits

	open    bool           // the lock could have been taken
	queued  bool           // others are ahead of us in the line
	seen    *time.Duration // since we were seen in the line; nil: not known to be in it
	offered bool           // we were offered the lock
	ahead   int
	left    *time.Duration // of the offer to the first in the line, nil without one
}

func (l *look) granted() engine.Answer {
	a := engine.Answer{Outcome: engine.Granted, Token: *l.token, AcquiredAt: l.acquiredAt}
	if l.rival != nil && !l.own && l.replaced == l.rival.ID {
		a.TookOver = l.rival
	}
	return a
}

// An insertion is [store.insert], or one that is under way.
type insertion func(context.Context, *pgdb.DB, engine.Request) (*look, error)

// attempt makes one attempt: by the small statement, and by the large one where
// there is something to take over or we stand in the line.
func (s *store) attempt(ctx context.Context, db *pgdb.DB, r engine.Request, inLine bool, insert insertion) (*look, error) {
	if !inLine {
		l, err := insert(ctx, db, r)
		if err != nil || l.token != nil || l.rival == nil || !l.open {
			return l, err
		}
	}
	args := []any{
		r.Term.Name, r.Term.ID, micro(r.Term.StaleAfter), micro(r.Heartbeat), micro(r.AlertAfter),
		encodeDetails(r.Details), micro(s.set.peerStaleAfter), r.Judge, r.Take, array(r.Own, self),
		r.Wait, s.channel,
	}
	l, _, err := single(ctx, db, pgdb.Work, s.sql.take, args, scanTake)
	return l, err
}

// inserting is insert.sql, or what it is for a try, and its arguments.
func (s *store) inserting(r engine.Request) (pgdb.Statement, []any) {
	args := []any{
		r.Term.Name, r.Term.ID, r.Term.StaleAfter.Seconds(), r.Heartbeat.Seconds(), r.AlertAfter.Seconds(),
		encodeDetails(r.Details), s.channel,
	}
	if r.Wait {
		return s.sql.insert, args
	}
	return s.sql.insertFirst, args
}

// acquiring is acquire.sql and its arguments.
func (s *store) acquiring(r engine.Request) (pgdb.Statement, []any) {
	return s.sql.acquire, []any{
		r.Term.Name, r.Term.ID, r.Term.StaleAfter.Seconds(), r.Heartbeat.Seconds(), r.AlertAfter.Seconds(),
		encodeDetails(r.Details), r.Wait, s.channel,
	}
}

// insert takes what nobody holds: by insert.sql where that may well be so, and by
// acquire.sql, which says who does.
func (s *store) insert(ctx context.Context, db *pgdb.DB, r engine.Request) (*look, error) {
	if !s.taken.has(r.Term.Name) {
		st, args := s.inserting(r)
		l, found, err := single(ctx, db, pgdb.Work, st, args,
			func(row pgdb.Row) (*look, error) { return scanGrant(row) })
		if err != nil && pgdb.Classify(err) != pgdb.RowLocked {
			return nil, err
		}
		s.taken.add(r.Term.Name) // by us, or by somebody else
		if found {
			return l, nil
		}
	}
	st, args := s.acquiring(r)
	l, found, err := single(ctx, db, pgdb.Work, st, args, func(row pgdb.Row) (*look, error) { return s.scanInsert(row) })
	switch {
	case err != nil:
		return nil, err
	case !found:
		l = &look{}
	}
	l.judge(r)
	return l, nil
}

// scanGrant reads what insert.sql returns, after the columns in first.
func scanGrant(row pgdb.Row, first ...any) (*look, error) {
	var l look
	var acquired *float64
	if err := row.Scan(append(first, &l.token, &acquired, &l.server)...); err != nil {
		return nil, err
	}
	l.acquiredAt = secondsSince1970(acquired)
	return &l, nil
}

// judge says whether the row that was found is a reason for take.sql, which
// judges for itself.
func (l *look) judge(r engine.Request) {
	h := l.rival
	switch {
	case l.token != nil:
	case h != nil:
		l.own = slices.Contains(r.Own, h.ID)
		l.open = l.own || h.Heartbeat == r.Take || r.Judge && h.Age > h.StaleAfter
	default:
		// Nobody was there and nothing was inserted: others wait, or somebody
		// was quicker. For a waiter the line tells the two apart.
		l.open, l.queued = true, r.Wait
	}
}

// scanInsert reads what acquire.sql returns, after the columns in first.
func (s *store) scanInsert(row pgdb.Row, first ...any) (*look, error) {
	var (
		l        look
		acquired *float64
		server   *int64
		facts    *string
	)
	if err := row.Scan(append(first, &l.token, &acquired, &server, &facts)...); err != nil {
		return nil, err
	}
	l.server, l.acquiredAt = orZero(server), secondsSince1970(acquired)
	if facts == nil {
		return &l, nil
	}
	var (
		id, promisedBy                   *string
		since, now, staleAfter, interval *float64
		beat                             *int64
		details                          json.RawMessage
	)
	into := []any{&id, &promisedBy, &since, &beat, &now, &staleAfter, &interval, &details}
	if err := json.Unmarshal([]byte(*facts), &into); err != nil {
		return nil, fmt.Errorf("what the statement says about a holder: %w", err)
	}
	l.promised = orZero(promisedBy) == *id
	l.rival = &engine.Rival{
		Holder:     engine.Label(*id),
		ID:         *id,
		Since:      secondsSince1970(since),
		Heartbeat:  strconv.FormatInt(orZero(beat), 10) + "/" + *id, // as {{beat}} in take.sql
		Age:        seconds(now) - duration(beat),
		StaleAfter: s.set.peerStaleAfter,
	}
	if l.promised {
		if staleAfter != nil {
			l.rival.StaleAfter = seconds(staleAfter)
		}
		l.rival.Interval = seconds(interval)
		l.rival.Details = decodeDetails(details)
	}
	return &l, nil
}

// seconds turns the server's seconds, as a fraction, into a duration of whole
// microseconds, which is the server's own grain.
func seconds(s *float64) time.Duration {
	return time.Duration(math.RoundToEven(orZero(s)*1e6)) * time.Microsecond
}

func secondsSince1970(s *float64) time.Time {
	if s == nil {
		return time.Time{}
	}
	return time.UnixMicro(int64(math.RoundToEven(*s * 1e6))).UTC()
}

func scanTake(row pgdb.Row) (*look, error) {
	var (
		l                           look
		acquiredAt                  *int64
		replaced, id, beat, details *string
		since, age, stale, interval *int64
		promised, own, marked       *bool
		seen, ahead, left           *int64
	)
	err := row.Scan(&l.token, &acquiredAt, &replaced, &l.server,
		&id, &since, &beat, &age, &stale, &interval, &details, &promised, &own, &marked,
		&l.open, &l.queued, &seen, &l.offered, &ahead, &left)
	if err != nil {
		return nil, err
	}
	l.acquiredAt, l.replaced = moment(acquiredAt), orZero(replaced)
	l.promised, l.own, l.marked = orZero(promised), orZero(own), orZero(marked)
	if id != nil {
		l.rival = &engine.Rival{
			Holder:     engine.Label(*id),
			ID:         *id,
			Since:      moment(since),
			Heartbeat:  orZero(beat),
			Age:        duration(age),
			StaleAfter: duration(stale),
		}
		if l.promised {
			l.rival.Interval = duration(interval)
			l.rival.Details = decodeDetails([]byte(orZero(details)))
		}
	}
	if seen != nil {
		d := duration(seen)
		l.seen = &d
	}
	if left != nil {
		d := duration(left)
		l.left = &d
	}
	l.ahead = int(orZero(ahead))
	return &l, nil
}
