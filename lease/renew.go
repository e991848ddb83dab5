package lease

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/clock"
	"github.com/pgmutex/pgmutex/internal/pgdb"
)

// aroundFor is for how long renewals step around locked rows after one was met.
// Stepping around costs twice as much, running into the same row again costs the
// row wait each time.
const aroundFor = time.Minute

// Renew implements [engine.Engine]. All terms travel in one statement. If it ran
// into a locked row, which it tells by failing, or did not renew them all, a
// second one steps around locked rows and tells the terms apart; whatever did not
// come back is asked for alone, and only then is a missing row a lost hold.
func (s *store) Renew(ctx context.Context, batch []engine.Term) []engine.Standing {
	standings := make([]engine.Standing, len(batch))
	db, _, err := s.started()
	if err != nil {
		return fill(standings, engine.Standing{Err: err})
	}
	if len(batch) > 1 {
		if err := s.renewMany(ctx, db, batch, standings); err != nil {
			return fill(standings, s.unclear(ctx, db, err))
		}
	}
	for i := range standings {
		if standings[i].Health != engine.Held {
			standings[i] = s.renewOne(ctx, db, batch[i])
		}
	}
	return standings
}

func indexes(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

func fill(standings []engine.Standing, with engine.Standing) []engine.Standing {
	for i := range standings {
		standings[i] = with
	}
	return standings
}

// renewMany fills in the terms that were renewed.
func (s *store) renewMany(ctx context.Context, db *pgdb.DB, batch []engine.Term, standings []engine.Standing) error {
	// In the order in which they were granted, which is that of their rows: of ten
	// thousand, in any other order, the server spends a third more on them.
	order := indexes(len(batch))
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(batch[i].Token, batch[j].Token) })
	batch = array(order, func(i int) engine.Term { return batch[i] })
	args := []any{
		array(batch, termName), array(batch, termID), array(batch, termToken),
	}
	if clock.Elapsed() >= time.Duration(s.aroundUntil.Load()) {
		all, err := s.renewBatch(ctx, db, args, batch, order, standings)
		switch {
		case all:
			return nil
		case pgdb.Classify(err) == pgdb.RowLocked:
			s.aroundUntil.Store(int64(clock.Elapsed() + aroundFor))
		case err != nil:
			return err
		}
	}
	type kept struct {
		n    int64
		stop bool
		by   string
	}
	rows, err := query(ctx, db, pgdb.Keep, s.sql.renewAround, args, func(row pgdb.Row) (k kept, err error) {
		return k, row.Scan(&k.n, &k.stop, &k.by)
	})
	if err != nil {
		return err
	}
	for _, k := range rows {
		standings[order[k.n-1]] = engine.Standing{Health: engine.Held, Stop: k.stop, StopBy: k.by}
	}
	return nil
}

// renewBatch renews all terms or says that it did not.
func (s *store) renewBatch(ctx context.Context, db *pgdb.DB, args []any, batch []engine.Term, order []int, standings []engine.Standing) (all bool, err error) {
	type answer struct {
		asked string // the term that is asked to stop; empty for the number
		count int64
		by    string
	}
	rows, err := query(ctx, db, pgdb.Keep, s.sql.renewBatch, args, func(row pgdb.Row) (a answer, err error) {
		return a, row.Scan(&a.asked, &a.count, &a.by)
	})
	if err != nil {
		return false, err
	}
	for _, a := range rows {
		if a.asked == "" {
			all = a.count == int64(len(batch))
		}
	}
	if !all {
		return false, nil
	}
	fill(standings, engine.Standing{Health: engine.Held})
	for _, a := range rows {
		i := slices.IndexFunc(batch, func(t engine.Term) bool { return t.ID == a.asked })
		if i >= 0 {
			standings[order[i]].Stop, standings[order[i]].StopBy = true, a.by
		}
	}
	return true, nil
}

func termName(t engine.Term) string { return t.Name }
func termID(t engine.Term) string   { return t.ID }
func termToken(t engine.Term) int64 { return t.Token }

func (s *store) renewOne(ctx context.Context, db *pgdb.DB, term engine.Term) engine.Standing {
	if ctx.Err() != nil {
		return engine.Standing{Err: context.Cause(ctx)}
	}
	held := engine.Standing{Health: engine.Held}
	_, found, err := single(ctx, db, pgdb.Keep, s.sql.renew, []any{term.Name, term.ID, term.Token},
		func(row pgdb.Row) (struct{}, error) { return struct{}{}, row.Scan(&held.Stop, &held.StopBy) })
	switch {
	case err != nil:
		return s.unclear(ctx, db, err)
	case found:
		return held
	}
	// No row of this term, which nobody can write again: final.
	return engine.Standing{Health: engine.Gone}
}

// unclear is a renewal without an answer. A row lock that did not give way, a
// missing right, a lost connection: none of them says that the hold has ended.
func (s *store) unclear(ctx context.Context, db *pgdb.DB, err error) engine.Standing {
	standing := engine.Standing{}
	switch pgdb.Classify(err) {
	case pgdb.ReadOnly:
		standing.Reason = engine.LostReadOnly // if it stays so until the deadline
		err = fmt.Errorf("%w: %w", errReadOnly, err)
	case pgdb.Denied, pgdb.Undefined:
		err = s.explain(ctx, db, err)
	}
	standing.Err = err
	return standing
}

// Explain implements [engine.Engine].
func (s *store) Explain(ctx context.Context, batch []engine.Term) []engine.Standing {
	standings := make([]engine.Standing, len(batch))
	db, _, err := s.started()
	if err != nil {
		return fill(standings, engine.Standing{Err: err})
	}
	type trace struct {
		n                int64
		holder, how, who *string
	}
	args := []any{array(batch, termName), array(batch, termID)}
	traces, err := query(ctx, db, pgdb.Work, s.sql.explain, args, func(row pgdb.Row) (t trace, err error) {
		return t, row.Scan(&t.n, &t.holder, &t.how, &t.who)
	})
	if err != nil {
		return fill(standings, engine.Standing{Err: s.explain(ctx, db, err)})
	}
	for _, t := range traces {
		standings[t.n-1] = judge(batch[t.n-1], orZero(t.holder), orZero(t.how), orZero(t.who))
	}
	return standings
}

// judge says what became of a term. The trace of its own end goes before the row
// that stands now: an operator's release may have been followed by anybody's
// acquisition, and so may our own release.
func judge(term engine.Term, holder, how, who string) engine.Standing {
	gone := engine.Standing{Health: engine.Gone}
	switch {
	case holder == term.ID:
		return engine.Standing{Health: engine.Held}
	case how == string(engine.EndForced):
		gone.Reason, gone.By = engine.LostReleased, who
	case how == string(engine.EndTakenOver):
		gone.Reason, gone.By = engine.LostTakenOver, engine.Label(who)
	case how == string(engine.EndReleased):
		// Released by its own client: nobody else did anything.
	case holder != "":
		gone.Reason, gone.By = engine.LostTakenOver, engine.Label(holder) // by one that leaves no trace
	default:
		gone.Reason = engine.LostRowGone
	}
	return gone
}
