package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pgmutex/pgmutex/engine"
)

// nameLimit is the lease engine's, in characters.
const nameLimit = 64

// Acquire implements [engine.Engine]. The batch is executed in one step.
func (p *process) Acquire(ctx context.Context, batch []engine.Request) []engine.Answer {
	if len(batch) == 0 {
		return nil
	}
	batch = slices.Clone(batch) // a delayed request outlives the call
	for i := range batch {
		batch[i].Details = maps.Clone(batch[i].Details)
		batch[i].Own = slices.Clone(batch[i].Own)
	}
	answers, got, err := exchange(ctx, p, labelOf(batch[0].Term.ID), func(now time.Time) []engine.Answer {
		answers := make([]engine.Answer, len(batch))
		for i := range batch {
			answers[i] = p.attempt(now, &batch[i])
		}
		return answers
	})
	switch {
	case got == answered:
		return answers
	case got == unknown:
		return slices.Repeat([]engine.Answer{{Outcome: engine.Unknown, Err: err}}, len(batch))
	case errors.Is(err, fs.ErrPermission), errors.Is(err, errors.ErrUnsupported), errors.Is(err, errClosed):
		return slices.Repeat([]engine.Answer{{Outcome: engine.Refused, Err: err}}, len(batch))
	default:
		return slices.Repeat([]engine.Answer{{Outcome: engine.Failed, Err: err}}, len(batch))
	}
}

// attempt decides one request. First whether the rows let it in, then whether
// the line does: somebody who would wait does not pass those who wait already.
func (p *process) attempt(now time.Time, req *engine.Request) engine.Answer {
	if err := check(req); err != nil {
		return engine.Answer{Outcome: engine.Refused, Err: err}
	}
	s, name := p.store, req.Term.Name
	own, rivals := s.inTheWay(req)
	if mayTake(now, req, rivals) && (!req.Wait || s.ahead(name, p) == 0) {
		return p.grant(now, req, own, rivals)
	}
	answer := engine.Answer{Outcome: engine.Busy, Holder: rivalOf(now, rivals)}
	if req.Wait {
		answer.Place = s.join(now, name, p, req.Term.Shared)
		answer.Hinted = !s.faultsOf(p).NoHints
	}
	return answer
}

func check(req *engine.Request) error {
	t := req.Term
	switch n := utf8.RuneCountInString(t.Name); {
	case n == 0 || n > nameLimit:
		return fmt.Errorf("memory: lock name %q has %d characters, allowed are 1 to %d", t.Name, n, nameLimit)
	case t.ID == "":
		return fmt.Errorf("memory: attempt for %q without an ID", t.Name)
	case t.StaleAfter <= 0:
		return fmt.Errorf("memory: StaleAfter %v for %q is not above zero", t.StaleAfter, t.Name)
	}
	return nil
}

// inTheWay splits the rows of the name into the client's own attempts, which
// never keep it out, and those of others that exclude the request. A row of the
// very attempt is one of the client's own: the request was sent twice.
func (s *Store) inTheWay(req *engine.Request) (own, rivals []*row) {
	for _, r := range s.rows[req.Term.Name] {
		switch {
		case r.term.ID == req.Term.ID || slices.Contains(req.Own, r.term.ID):
			own = append(own, r)
		case !req.Term.Shared || !r.term.Shared:
			rivals = append(rivals, r)
		}
	}
	return own, rivals
}

// mayTake says whether every rival may be replaced.
func mayTake(now time.Time, req *engine.Request, rivals []*row) bool {
	if len(rivals) == 0 || req.Take != "" && req.Take == heartbeatOf(rivals) {
		return true
	}
	return req.Judge && !slices.ContainsFunc(rivals, func(r *row) bool { return !r.stale(now) })
}

// heartbeatOf names the present heartbeats of all rivals together. A contender
// can watch one value only, and an exclusive one must outwait all shared
// holders; as the value changes with each of them, and the rival that is shown
// is the one with the most time left, whoever has watched it for that long has
// watched all of them become stale.
func heartbeatOf(rivals []*row) string {
	var b strings.Builder
	for _, r := range rivals {
		b.WriteString(r.term.ID)
		b.WriteByte('#')
		b.WriteString(strconv.FormatInt(r.beat, 10))
		b.WriteByte(' ')
	}
	return b.String()
}

// rivalOf shows the rival that will be in the way for the longest, nil without
// one.
func rivalOf(now time.Time, rivals []*row) *engine.Rival {
	if len(rivals) == 0 {
		return nil
	}
	last := slices.MaxFunc(rivals, func(a, b *row) int { return cmp.Compare(a.left(now), b.left(now)) })
	return &engine.Rival{
		Holder:     labelOf(last.term.ID),
		ID:         last.term.ID,
		Since:      wall(last.acquiredAt),
		Heartbeat:  heartbeatOf(rivals),
		Age:        last.age(now),
		StaleAfter: last.term.StaleAfter,
		Interval:   last.heartbeat,
		Details:    maps.Clone(last.details),
	}
}

func (p *process) grant(now time.Time, req *engine.Request, own, rivals []*row) engine.Answer {
	s := p.store
	answer := engine.Answer{Outcome: engine.Granted, AcquiredAt: wall(now), TookOver: rivalOf(now, rivals)}
	for _, r := range own {
		s.remove(r, now, released(r))
	}
	for _, r := range rivals {
		// Their holders are not told: they learn it from their next renewal, as
		// with a real table.
		s.remove(r, now, ending{
			PastHold: engine.PastHold{End: engine.EndTakenOver, By: labelOf(req.Term.ID)},
			loss:     engine.LostTakenOver,
			listed:   true,
		})
	}
	s.token++
	r := &row{
		term:       req.Term,
		process:    p,
		acquiredAt: now,
		heartbeat:  req.Heartbeat,
		alertAfter: req.AlertAfter,
		details:    req.Details,
	}
	r.term.Token = s.token
	s.touch(r, now)
	s.insert(r)
	s.granted(now, p, req)
	answer.Token = s.token
	return answer
}
