package local

import (
	"context"
	"iter"

	"github.com/pgmutex/pgmutex/engine"
)

// keepEvents is how many ended holds are kept at least, for the history and for
// explaining losses; tidyEvery is how many more there may be.
const (
	keepEvents = 10_000
	tidyEvery  = 256
)

// An event is a hold that has ended.
type event struct {
	id                   int64
	name, term           string
	token                int64
	sinceWall, endedWall int64
	how, by, reason      string
}

const eventColumns = `name, term, token, since_wall, ended_wall, how, ended_by, reason`

const (
	insertEvent  = `INSERT INTO event (` + eventColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING id`
	tidyEvents   = `DELETE FROM event WHERE id <= ?`
	eventOfTerm  = `SELECT how, ended_by FROM event WHERE name = ? AND term = ? ORDER BY id DESC LIMIT 1`
	selectEvents = `SELECT id, ` + eventColumns + ` FROM event WHERE id < ? AND (? = '' OR name = ?) ORDER BY id DESC LIMIT ?`
)

// file records e. There is no index but the order of the records: a search is
// for after a loss, and 10,000 records take a few milliseconds.
func (d *database) file(e *event) error {
	var id int64
	err := d.row(insertEvent, e.name, e.term, e.token, e.sinceWall, e.endedWall, e.how, e.by, e.reason).scan(&id)
	if err == nil && id%tidyEvery == 0 {
		err = d.run(tidyEvents, id-keepEvents)
	}
	return err
}

// whyGone explains a term that has no row any more. One that its own holder
// released has no reason.
func (d *database) whyGone(term engine.Term) (engine.Standing, error) {
	gone := engine.Standing{Health: engine.Gone}
	var how string
	found, err := d.row(eventOfTerm, term.Name, term.ID).found(&how, &gone.By)
	switch {
	case err != nil:
		return engine.Standing{}, err
	case !found:
		gone.Reason = engine.LostRowGone
	case how == string(engine.EndTakenOver):
		gone.Reason = engine.LostTakenOver
	case how == string(engine.EndForced):
		gone.Reason = engine.LostReleased
	}
	return gone, nil
}

// History implements [engine.Inspector]. It keeps at least the latest 10,000
// holds. What ends while the history is being read is not in it.
func (p *process) History(ctx context.Context, name string) iter.Seq2[engine.PastHold, error] {
	return func(yield func(engine.PastHold, error) bool) {
		before := int64(1<<63 - 1)
		for {
			var page []event
			err := p.view(ctx, func() error {
				page = nil
				return p.db.each(selectEvents, []any{before, name, name, pageSize}, func(scan func(...any) error) error {
					var e event
					err := scan(&e.id, &e.name, &e.term, &e.token, &e.sinceWall, &e.endedWall, &e.how, &e.by, &e.reason)
					page = append(page, e)
					return err
				})
			})
			if err != nil {
				yield(engine.PastHold{}, err)
				return
			}
			for _, e := range page {
				if !yield(e.past(), nil) {
					return
				}
				before = e.id
			}
			if len(page) < pageSize {
				return
			}
		}
	}
}

func (e *event) past() engine.PastHold {
	return engine.PastHold{
		Name:       e.name,
		Holder:     engine.Label(e.term),
		Term:       e.term,
		Token:      e.token,
		AcquiredAt: wall(e.sinceWall),
		EndedAt:    wall(e.endedWall),
		End:        engine.End(e.how),
		By:         e.by,
		Reason:     e.reason,
	}
}
