package lease

import (
	"context"
	"strconv"
	"time"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/pgdb"
)

// acquireBatch takes what is free of many names in one statement. Whatever needs
// more than that, a takeover, a place in the line, a row that is being written,
// is to come again alone, so that it holds nobody up.
func (s *store) acquireBatch(ctx context.Context, db *pgdb.DB, line *line, batch []engine.Request, answers []engine.Answer) {
	every := time.Duration(0)
	for _, r := range batch {
		every = max(every, r.Heartbeat)
	}
	if err := s.reserve(ctx, db, every); err != nil {
		fillAnswers(answers, engine.Answer{Outcome: engine.Failed, Err: err})
		return
	}
	fillAnswers(answers, engine.Answer{Outcome: engine.Busy, Alone: true})
	fresh, held := []int{}, []int{} // of the elements
	for i, r := range batch {
		switch {
		case r.Term.Shared, r.Wait && (r.Behind || line.waits(r.Term.Name) || line.owes(r.Term.Name)):
		case s.taken.has(r.Term.Name):
			held = append(held, i)
		default:
			fresh = append(fresh, i)
		}
	}
	s.takeMany(ctx, db, line, batch, fresh, answers, s.insertMany)
	s.takeMany(ctx, db, line, batch, held, answers, s.acquireMany)
}

// takeMany fills in the answers to some elements of a batch, which one statement
// gives.
func (s *store) takeMany(ctx context.Context, db *pgdb.DB, line *line, batch []engine.Request, some []int, answers []engine.Answer,
	ask func(context.Context, *pgdb.DB, []engine.Request) ([]*look, error)) {
	if len(some) == 0 {
		return
	}
	known := s.servers.now()
	looks, err := ask(ctx, db, array(some, func(i int) engine.Request { return batch[i] }))
	switch {
	case pgdb.Classify(err) == pgdb.RowLocked, pgdb.Classify(err) == pgdb.Duplicate:
		return // by one of them
	case err != nil:
		answer := s.refusal(ctx, db, err)
		for _, i := range some {
			answers[i] = answer
		}
		return
	}
	for k, i := range some {
		s.taken.add(batch[i].Term.Name) // by us, or by somebody else
		switch l := looks[k]; {
		case l == nil:
		case l.token != nil:
			answers[i] = l.granted()
			if !known.has(l.server) {
				// Asked for alone, it raises the tokens.
				answers[i] = engine.Answer{Outcome: engine.Busy, Alone: true}
				if err := s.giveBack(ctx, db, line, batch[i].Term); err != nil {
					answers[i] = engine.Answer{Outcome: engine.Unknown, Err: err}
				}
			}
		case l.rival != nil && !l.open && !batch[i].Wait:
			answers[i] = engine.Answer{Outcome: engine.Busy, Holder: l.rival}
		}
	}
}

func fillAnswers(answers []engine.Answer, with engine.Answer) {
	for i := range answers {
		answers[i] = with
	}
}

// manyArgs are the arguments of both statements for many names.
func (s *store) manyArgs(batch []engine.Request) []any {
	inSeconds := func(of func(engine.Request) time.Duration) string {
		return notation(batch, func(r engine.Request) string {
			return strconv.FormatFloat(of(r).Seconds(), 'g', -1, 64)
		})
	}
	return []any{
		array(batch, func(r engine.Request) string { return r.Term.Name }),
		array(batch, func(r engine.Request) string { return r.Term.ID }),
		inSeconds(func(r engine.Request) time.Duration { return r.Term.StaleAfter }),
		inSeconds(func(r engine.Request) time.Duration { return r.Heartbeat }),
		inSeconds(func(r engine.Request) time.Duration { return r.AlertAfter }),
		array(batch, func(r engine.Request) string {
			text, _ := encodeDetails(r.Details).(string)
			return text
		}),
		notation(batch, func(r engine.Request) string { return strconv.FormatBool(r.Wait) }),
		s.channel,
	}
}

// insertMany runs insert_batch.sql; an element that was not taken is nil.
func (s *store) insertMany(ctx context.Context, db *pgdb.DB, batch []engine.Request) ([]*look, error) {
	type element struct {
		name string
		l    *look
	}
	rows, err := query(ctx, db, pgdb.Work, s.sql.insertBatch, s.manyArgs(batch), func(row pgdb.Row) (e element, err error) {
		e.l, err = scanGrant(row, &e.name)
		return e, err
	})
	if err != nil {
		return nil, err
	}
	granted := make(map[string]*look, len(rows))
	for _, e := range rows {
		granted[e.name] = e.l
	}
	return array(batch, func(r engine.Request) *look { return granted[r.Term.Name] }), nil
}

// acquireMany runs acquire_batch.sql; an element without a row of the result, which
// there should not be, is nil.
func (s *store) acquireMany(ctx context.Context, db *pgdb.DB, batch []engine.Request) ([]*look, error) {
	type element struct {
		n int64
		l *look
	}
	rows, err := query(ctx, db, pgdb.Work, s.sql.acquireBatch, s.manyArgs(batch), func(row pgdb.Row) (e element, err error) {
		e.l, err = s.scanInsert(row, &e.n)
		return e, err
	})
	if err != nil {
		return nil, err
	}
	looks := make([]*look, len(batch))
	for _, e := range rows {
		looks[e.n-1] = e.l
		e.l.judge(batch[e.n-1])
	}
	return looks, nil
}
