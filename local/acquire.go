package local

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/pgmutex/pgmutex/engine"
)

// Acquire implements [engine.Engine]. It looks first, and takes its turn to
// write only if there is something to be written for one of the batch: trying a
// lock that is held, or waiting for it, disturbs nobody.
func (p *process) Acquire(ctx context.Context, batch []engine.Request) []engine.Answer {
	if len(batch) == 0 {
		return nil
	}
	answers := make([]engine.Answer, len(batch))
	try := func(mayWrite bool) func() error {
		return func() error {
			now := p.now()
			for i := range batch {
				var err error
				if answers[i], err = p.attempt(now, &batch[i], mayWrite); err != nil {
					return err
				}
			}
			return nil
		}
	}
	err := p.view(ctx, try(false))
	if errors.Is(err, errMustWrite) {
		err = p.update(ctx, try(true))
	}
	if err == nil {
		return answers
	}
	failure := engine.Answer{Outcome: engine.Failed, Err: err}
	switch {
	case errors.Is(err, errInDoubt):
		failure.Outcome = engine.Unknown
	case final(err):
		failure.Outcome = engine.Refused
	}
	return slices.Repeat([]engine.Answer{failure}, len(batch))
}

// errMustWrite ends a look that cannot answer without writing.
var errMustWrite = errors.New("local: has to write")

// attempt decides one request. First whether the row lets it in, then whether
// the line does: somebody who would wait does not pass those who wait already.
func (p *process) attempt(now moment, req *engine.Request, mayWrite bool) (engine.Answer, error) {
	if err := check(req); err != nil {
		return engine.Answer{Outcome: engine.Refused, Err: err}, nil //nolint:nilerr // it is in the answer
	}
	r, err := p.db.find(req.Term.Name)
	if err != nil {
		return engine.Answer{}, err
	}
	own := r != nil && (r.term == req.Term.ID || slices.Contains(req.Own, r.term))
	takeable := r == nil || own || r.otherwise(now, req)
	var l *line
	if req.Wait {
		if l, err = p.db.line(req.Term.Name, now); err != nil {
			return engine.Answer{}, err
		}
		open := r == nil || own || r.stale(now)
		if err := p.stand(l, now, open, mayWrite); err != nil {
			return engine.Answer{}, err
		}
	}
	if takeable && (l == nil || l.ahead(p.client) == 0) {
		if !mayWrite {
			return engine.Answer{}, errMustWrite
		}
		return p.grant(now, req, r, own)
	}
	answer := engine.Answer{Outcome: engine.Busy}
	if r != nil && !own {
		answer.Holder = r.rival(now)
	}
	if req.Wait {
		answer.Place = l.ahead(p.client) + 1
	}
	return answer, nil
}

// otherwise tells whether the request may take a row that is not the client's
// own: the store's clock or the waiter's watch have to say so, but a row of
// another boot is nobody's.
func (r *row) otherwise(now moment, req *engine.Request) bool {
	return req.Take != "" && req.Take == r.value() ||
		r.era(now) == otherBoot ||
		req.Judge && r.stale(now)
}

func check(req *engine.Request) error {
	t := req.Term
	switch n := utf8.RuneCountInString(t.Name); {
	case n == 0 || n > nameLimit:
		return fmt.Errorf("local: lock name %q has %d characters, allowed are 1 to %d", t.Name, n, nameLimit)
	case t.ID == "":
		return fmt.Errorf("local: attempt for %q without an ID", t.Name)
	case t.StaleAfter <= 0:
		return fmt.Errorf("local: StaleAfter %v for %q is not above zero", t.StaleAfter, t.Name)
	case t.Shared:
		return fmt.Errorf("local: shared lock %q: %w", t.Name, errors.ErrUnsupported)
	}
	return nil
}

// grant replaces r by a row of the request's.
func (p *process) grant(now moment, req *engine.Request, r *row, own bool) (engine.Answer, error) {
	answer := engine.Answer{Outcome: engine.Granted, AcquiredAt: wall(now.wall.UnixNano())}
	var err error
	switch {
	case r == nil:
	case own:
		err = p.db.released(r, now)
	default:
		answer.TookOver = r.rival(now)
		err = p.db.remove(r, now, engine.EndTakenOver, engine.Label(req.Term.ID), "")
	}
	if err != nil {
		return engine.Answer{}, err
	}
	if answer.Token, err = p.draw(); err != nil {
		return engine.Answer{}, err
	}
	details, err := pack(req.Details)
	if err != nil {
		return engine.Answer{}, err
	}
	err = p.db.insert(&row{
		name: req.Term.Name, term: req.Term.ID, token: answer.Token, boot: now.boot,
		sinceWall: now.wall.UnixNano(),
		beat:      1, beatAt: now.at, beatWall: now.wall.UnixNano(),
		staleAfter: req.Term.StaleAfter, heartbeat: req.Heartbeat, alertAfter: req.AlertAfter,
		details: details,
	})
	if err != nil {
		return engine.Answer{}, err
	}
	return answer, p.granted(req)
}
