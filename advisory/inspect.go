package advisory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/pgdb"
)

var (
	listOne = read("holders", "{{which}}", "h.key = $1::bigint")
	// Neither waiters' marks nor locks that no name can have.
	listAll = read("holders", "{{which}}", "h.key >= 0 AND $1::bigint IS NULL")
)

// List implements [engine.Inspector]. Sessions show keys and not names: the names
// of locks that this client has not been asked about are empty, and those of
// other programs are listed as well.
func (e *store) List(ctx context.Context) iter.Seq2[engine.Status, error] {
	return func(yield func(engine.Status, error) bool) {
		all, err := e.look(ctx, listAll, nil)
		if err != nil {
			yield(engine.Status{}, err)
			return
		}
		statuses := make([]engine.Status, 0, len(all))
		for _, k := range all {
			name, _ := e.names.get(k.key)
			statuses = append(statuses, e.status(name, k)...)
		}
		slices.SortStableFunc(statuses, func(a, b engine.Status) int {
			return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
		})
		for _, s := range statuses {
			if !yield(s, nil) {
				return
			}
		}
	}
}

// Inspect implements [engine.Inspector].
func (e *store) Inspect(ctx context.Context, name string) (engine.Status, error) {
	id := engine.NameID(name)
	e.names.put(id, name)
	all, err := e.look(ctx, listOne, id)
	if err != nil {
		return engine.Status{}, err
	}
	for _, k := range all {
		if statuses := e.status(name, k); len(statuses) > 0 {
			return statuses[0], nil
		}
	}
	return engine.Status{Name: name, ID: id, Engine: "advisory", State: engine.StateFree}, nil
}

// History implements [engine.Inspector].
func (e *store) History(context.Context, string) iter.Seq2[engine.PastHold, error] {
	return func(yield func(engine.PastHold, error) bool) {
		yield(engine.PastHold{}, fmt.Errorf("the advisory engine keeps no history: %w", errors.ErrUnsupported))
	}
}

// look runs holders.sql over the connection beside the lock session.
func (e *store) look(ctx context.Context, st *statement, id any) ([]keyHolder, error) {
	var all []keyHolder
	err := e.side.Run(ctx, pgdb.Work, pgdb.Statement{Name: st.name, SQL: st.text}, []any{id}, func(r pgdb.Row) error {
		var k keyHolder
		var app, role, address *string
		var started *int64
		var waiters int64
		if err := r.Scan(&k.key, &k.pid, &k.shared, &k.ours, &waiters, &app, &role, &address, &started, &k.asked); err != nil {
			return err
		}
		k.waiters, k.app, k.role, k.address = int(waiters), text(app), text(role), text(address)
		if started != nil {
			k.started = fmt.Append(nil, *started)
		}
		all = append(all, k)
		return nil
	})
	return all, err
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// status shows what a session holds under one key: with all that is known if the
// session is ours, and otherwise with what the server shows. A hold of the former
// kind may be one of several; one that has been given back meanwhile is none.
func (e *store) status(name string, k keyHolder) []engine.Status {
	base := engine.Status{
		Name: name, ID: k.key, Engine: "advisory", State: engine.StateHeld, Shared: k.shared, Waiters: k.waiters, StopAsked: k.asked,
	}
	s := e.current()
	if s == nil || s.backend != k.pid {
		base.Holder, base.Term, base.Details = k.label(), k.termID(), k.details()
		return []engine.Status{base}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var statuses []engine.Status
	for _, h := range s.table.ids[k.key] {
		one := base
		one.Name, one.Holder, one.Term, one.Token = h.term.Name, engine.Label(h.term.ID), h.term.ID, h.term.Token
		one.StopAsked = h.stop
		one.Since, one.StaleAfter, one.Remaining = h.at, h.term.StaleAfter, h.term.StaleAfter
		one.Heartbeat, one.AlertAfter, one.Details = h.request.Heartbeat, h.request.AlertAfter, h.request.Details
		statuses = append(statuses, one)
	}
	return statuses
}
