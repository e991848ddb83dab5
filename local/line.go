package local

import (
	"context"
	"slices"
	"time"

	"github.com/pgmutex/pgmutex/engine"
)

const (
	// offerTime is how long a freed lock is kept for the first in the line.
	offerTime = time.Second

	// seenFor is how long a waiter counts after its latest sign of life, and
	// seenEvery how old that may be before it gives another: in between, waiting
	// writes nothing.
	seenFor   = 10 * time.Second
	seenEvery = 2 * time.Second

	// forgetAfter is when the place of a client that is gone is removed.
	forgetAfter = 5 * time.Minute
)

// A line is the clients that wait for one name, in the order in which they came.
//
// Whoever does not take an available lock within offerTime is passed over: it
// keeps its place but blocks nobody, until it makes itself heard by another
// attempt. So a slow client does not lose its turn. Nobody is told anything:
// whoever finds the lock available and somebody else's turn starts that one's
// time to run, as does the release, gives a sign of life of its own, and passes
// over the first when the time is up, with all that gave none since it began: so
// dead clients cost the line one offerTime, however many there are.
//
// The times are this boot's; those of an earlier one make no sense and so do not
// count.
type line struct {
	name    string
	waiters []*waiter
}

type waiter struct {
	client  string
	ticket  int64
	seen    time.Duration
	offered time.Duration // 0 for not
	passed  bool
	alive   bool // seen lately
}

func (w *waiter) counts() bool { return w.alive && !w.passed }

const selectLine = `SELECT client, ticket, seen_at, offered_at, passed FROM waiter WHERE name = ? ORDER BY ticket, client`

func (d *database) line(name string, now moment) (*line, error) {
	l := &line{name: name}
	err := d.each(selectLine, []any{name}, func(scan func(...any) error) error {
		w := new(waiter)
		if err := scan(&w.client, &w.ticket, &w.seen, &w.offered, &w.passed); err != nil {
			return err
		}
		w.alive = w.seen <= now.at && now.at-w.seen <= seenFor
		l.waiters = append(l.waiters, w)
		return nil
	})
	return l, err
}

func (l *line) of(client string) *waiter {
	for _, w := range l.waiters {
		if w.client == client {
			return w
		}
	}
	return nil
}

// head is the first that counts, nil without one.
func (l *line) head() *waiter {
	for _, w := range l.waiters {
		if w.counts() {
			return w
		}
	}
	return nil
}

// ahead counts those who go before the client: all of them if it has no place.
func (l *line) ahead(client string) int {
	n := 0
	for _, w := range l.waiters {
		if w.client == client {
			break
		}
		if w.counts() {
			n++
		}
	}
	return n
}

const (
	insertWaiter = `INSERT INTO waiter (name, client, ticket, seen_at) VALUES (?, ?, ?, ?)`
	touchWaiter  = `UPDATE waiter SET seen_at = ?, passed = 0 WHERE name = ? AND client = ?`
	offerWaiter  = `UPDATE waiter SET offered_at = ? WHERE name = ? AND client = ?`
	passWaiter   = `UPDATE waiter SET passed = 1, offered_at = 0 WHERE name = ? AND client = ?`
	forgetOld    = `DELETE FROM waiter WHERE seen_at > ? OR seen_at < ?`
	voidOffers   = `UPDATE waiter SET offered_at = 0 WHERE name = ? AND offered_at <> 0`
	deleteWaiter = `DELETE FROM waiter WHERE name = ? AND client = ?`
)

// stand gives the client a place in the line, or confirms the one it has, and
// passes over whoever lets the lock lie. Afterwards the client counts, so that
// the line has a first. Without leave to write it returns errMustWrite if it
// would change anything.
func (p *process) stand(l *line, now moment, open, mayWrite bool) error {
	me := l.of(p.client)
	if me == nil || me.passed || me.seen > now.at || now.at-me.seen > seenEvery {
		if !mayWrite {
			return errMustWrite
		}
		if err := p.takePlace(l, me, now); err != nil {
			return err
		}
	}
	first := l.head()
	if !open || first.client == p.client {
		return nil
	}
	if waiting := now.at - first.offered; first.offered != 0 && 0 <= waiting && waiting <= offerTime {
		if first.offered <= l.of(p.client).seen {
			return nil
		}
		if !mayWrite {
			return errMustWrite
		}
		return p.takePlace(l, l.of(p.client), now)
	}
	if !mayWrite {
		return errMustWrite
	}
	return p.passOver(l, first, now)
}

// passOver makes somebody the first whose time runs from now on, if that is not
// ourselves. The present first has let its time pass, unless it had none yet.
func (p *process) passOver(l *line, first *waiter, now moment) error {
	if since := first.offered; since != 0 && since <= now.at {
		for _, w := range l.waiters {
			if w == first || w.counts() && w.seen < since && w.client != p.client {
				w.passed = true
				if err := p.db.run(passWaiter, l.name, w.client); err != nil {
					return err
				}
			}
		}
		if first = l.head(); first.client == p.client {
			return nil
		}
	}
	first.offered = max(now.at, 1)
	err := p.db.run(offerWaiter, int64(first.offered), l.name, first.client)
	return err
}

func (p *process) takePlace(l *line, me *waiter, now moment) error {
	p.places[l.name] = struct{}{}
	if me != nil {
		me.seen, me.passed, me.alive = now.at, false, true
		err := p.db.run(touchWaiter, int64(now.at), l.name, p.client)
		return err
	}
	if err := p.db.run(forgetOld, int64(now.at), int64(now.at-forgetAfter)); err != nil {
		return err
	}
	me = &waiter{client: p.client, ticket: 1, seen: now.at, alive: true}
	if n := len(l.waiters); n > 0 {
		me.ticket = l.waiters[n-1].ticket + 1
	}
	l.waiters = append(l.waiters, me)
	err := p.db.run(insertWaiter, l.name, p.client, me.ticket, int64(now.at))
	return err
}

// granted brings the line up to date after a grant: the client has what it stood
// for, and the offer is void, whoever barged in.
func (p *process) granted(req *engine.Request) error {
	if req.Wait {
		delete(p.places, req.Term.Name)
		if err := p.db.run(deleteWaiter, req.Term.Name, p.client); err != nil {
			return err
		}
	}
	err := p.db.run(voidOffers, req.Term.Name)
	return err
}

// offer offers a lock that has just become available to the first in its line.
func (d *database) offer(name string, now moment) error {
	l, err := d.line(name, now)
	if err != nil {
		return err
	}
	if first := l.head(); first != nil {
		err = d.run(offerWaiter, int64(max(now.at, 1)), name, first.client)
	}
	return err
}

// giveUp removes the client's places and offers what was offered to it to the
// next one.
func (p *process) giveUp(now moment, names map[string]struct{}) error {
	for name := range names {
		l, err := p.db.line(name, now)
		if err != nil {
			return err
		}
		me := l.of(p.client)
		if me == nil {
			continue
		}
		if err := p.db.run(deleteWaiter, name, p.client); err != nil {
			return err
		}
		l.waiters = slices.DeleteFunc(l.waiters, func(w *waiter) bool { return w == me })
		if next := l.head(); next != nil && me.offered != 0 {
			if err := p.db.run(offerWaiter, int64(max(now.at, 1)), name, next.client); err != nil {
				return err
			}
		}
	}
	return nil
}

// Leave implements [engine.Queuer].
func (p *process) Leave(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	set := make(map[string]struct{}, len(names))
	for _, name := range names {
		set[name] = struct{}{}
	}
	return p.update(ctx, func() error {
		if err := p.giveUp(p.now(), set); err != nil {
			return err
		}
		for _, name := range names {
			delete(p.places, name)
		}
		return nil
	})
}
