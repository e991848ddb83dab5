package local

import (
	"context"
	"iter"

	"github.com/pgmutex/pgmutex/engine"
)

// pageSize is how many records are read in one transaction: one that is kept
// open while the reader works would keep the log from being reused.
const pageSize = 500

const selectPage = `SELECT ` + rowColumns + ` FROM lock WHERE name > ? ORDER BY name LIMIT ?`

// List implements [engine.Inspector]. It reads 500 locks at a time, each page at
// one moment.
func (p *process) List(ctx context.Context) iter.Seq2[engine.Status, error] {
	return func(yield func(engine.Status, error) bool) {
		after := ""
		for {
			var page []engine.Status
			err := p.view(ctx, func() error {
				var err error
				page, err = p.page(after)
				return err
			})
			if err != nil {
				yield(engine.Status{}, err)
				return
			}
			for _, status := range page {
				if !yield(status, nil) {
					return
				}
				after = status.Name
			}
			if len(page) < pageSize {
				return
			}
		}
	}
}

func (p *process) page(after string) ([]engine.Status, error) {
	now := p.now()
	var rows []*row
	err := p.db.each(selectPage, []any{after, pageSize}, func(scan func(...any) error) error {
		r := new(row)
		rows = append(rows, r)
		return scan(r.fields()...)
	})
	if err != nil {
		return nil, err
	}
	page := make([]engine.Status, len(rows))
	for i, r := range rows {
		if page[i], err = p.status(r.name, r, now); err != nil {
			return nil, err
		}
	}
	return page, nil
}

// Inspect implements [engine.Inspector].
func (p *process) Inspect(ctx context.Context, name string) (engine.Status, error) {
	var status engine.Status
	err := p.view(ctx, func() error {
		r, err := p.db.find(name)
		if err != nil {
			return err
		}
		status, err = p.status(name, r, p.now())
		return err
	})
	if err != nil {
		return engine.Status{}, err
	}
	return status, nil
}

// status shows r, or a free lock if r is nil.
func (p *process) status(name string, r *row, now moment) (engine.Status, error) {
	status := engine.Status{Name: name, ID: engine.NameID(name), Engine: "local", State: engine.StateFree}
	l, err := p.db.line(name, now)
	if err != nil {
		return engine.Status{}, err
	}
	for _, w := range l.waiters {
		if w.counts() {
			status.Waiters++
		}
	}
	if r == nil {
		return status, nil
	}
	age := r.age(now)
	status.State = engine.StateHeld
	status.Remaining = max(0, r.staleAfter-age)
	switch {
	case r.stale(now):
		status.State = engine.StateStale
		status.Remaining = 0
	case r.alertAfter > 0 && age > r.alertAfter:
		status.State = engine.StateLate
	}
	status.Holder = engine.Label(r.term)
	status.Term = r.term
	status.Token = r.token
	status.Since = wall(r.sinceWall)
	status.HeartbeatAge = age
	status.Heartbeat = r.heartbeat
	status.AlertAfter = r.alertAfter
	status.StaleAfter = r.staleAfter
	status.StopAsked = r.stopBy.Valid
	status.Details = unpack(r.details)
	return status, nil
}
