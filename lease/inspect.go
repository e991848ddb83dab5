package lease

import (
	"context"
	"iter"
	"math"
	"time"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/pgdb"
)

// pageSize is how many rows are read at a time.
const pageSize = 500

// peerAlertAfter is when a holder that says nothing about itself is late: the
// alert threshold that the Python package has by default.
const peerAlertAfter = 30 * time.Second

// List implements [engine.Inspector].
func (s *store) List(ctx context.Context) iter.Seq2[engine.Status, error] {
	return pages(func(last *engine.Status) ([]engine.Status, error) {
		after := ""
		if last != nil {
			after = last.Name
		}
		return s.statuses(ctx, s.sql.statusAll, nil, after)
	})
}

// Inspect implements [engine.Inspector].
func (s *store) Inspect(ctx context.Context, name string) (engine.Status, error) {
	list, err := s.statuses(ctx, s.sql.statusOne, name, "")
	if err != nil {
		return engine.Status{}, err
	}
	if len(list) == 0 {
		return engine.Status{Name: name, ID: engine.NameID(name), Engine: "lease", State: engine.StateFree}, nil
	}
	return list[0], nil
}

// History implements [engine.Inspector].
func (s *store) History(ctx context.Context, name string) iter.Seq2[engine.PastHold, error] {
	st, filter := s.sql.historyAll, any(nil)
	if name != "" {
		st, filter = s.sql.historyOne, name
	}
	before := int64(math.MaxInt64)
	return pages(func(last *engine.PastHold) ([]engine.PastHold, error) {
		if last == nil {
			before = math.MaxInt64
		}
		db, _, err := s.started()
		if err != nil {
			return nil, err
		}
		list, err := query(ctx, db, pgdb.Work, st, []any{filter, before, int64(pageSize)},
			func(row pgdb.Row) (p engine.PastHold, err error) {
				var since, end *int64
				var how, by string
				err = row.Scan(&before, &p.Name, &p.Term, &p.Token, &since, &end, &how, &by, &p.Reason)
				p.Holder, p.AcquiredAt, p.EndedAt = engine.Label(p.Term), moment(since), moment(end)
				p.End, p.By = engine.End(how), by
				if p.End == engine.EndTakenOver {
					p.By = engine.Label(by) // there it is a term
				}
				return p, err
			})
		if err != nil {
			return nil, s.explain(ctx, db, err)
		}
		return list, nil
	})
}

// pages yields what next returns, page after page, until one is not full. No
// connection is kept while the caller works on an element: it may well take or
// end a lock there.
func pages[T any](next func(last *T) ([]T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var last *T
		for {
			list, err := next(last)
			if err != nil {
				var zero T
				yield(zero, err)
				return
			}
			for _, v := range list {
				if !yield(v, nil) {
					return
				}
			}
			if len(list) < pageSize {
				return
			}
			last = &list[len(list)-1]
		}
	}
}

func (s *store) statuses(ctx context.Context, st pgdb.Statement, name any, after string) ([]engine.Status, error) {
	db, _, err := s.started()
	if err != nil {
		return nil, err
	}
	args := []any{name, after, int64(pageSize), micro(s.set.peerStaleAfter)}
	list, err := query(ctx, db, pgdb.Work, st, args, scanStatus)
	if err != nil {
		return nil, s.explain(ctx, db, err)
	}
	return list, nil
}

func scanStatus(row pgdb.Row) (engine.Status, error) {
	var (
		st                                 = engine.Status{Engine: "lease", State: engine.StateHeld}
		promised, stop                     bool
		since, age, stale, interval, alert *int64
		token                              *int64
		details                            *string
		waiters                            int64
	)
	err := row.Scan(&st.Name, &st.Term, &promised, &since, &age, &stale, &interval, &alert, &token, &details, &stop, &waiters)
	if err != nil {
		return st, err
	}
	st.ID = engine.NameID(st.Name)
	st.Holder = engine.Label(st.Term)
	st.Since = moment(since)
	st.HeartbeatAge = max(duration(age), 0) // a clock that was set back
	st.StaleAfter = duration(stale)
	st.Waiters = int(waiters)
	if promised {
		st.Token = orZero(token)
		st.Heartbeat, st.AlertAfter = duration(interval), duration(alert)
		st.Details = decodeDetails([]byte(orZero(details)))
		st.StopAsked = stop
	}
	late := max(st.AlertAfter, 2*st.Heartbeat)
	if late == 0 {
		late = peerAlertAfter
	}
	switch {
	case st.HeartbeatAge > st.StaleAfter:
		st.State = engine.StateStale
	case st.HeartbeatAge > late:
		st.State = engine.StateLate
	}
	st.Remaining = max(st.StaleAfter-st.HeartbeatAge, 0)
	return st, nil
}
