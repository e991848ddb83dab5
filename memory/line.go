package memory

import (
	"context"
	"slices"
	"time"

	"github.com/pgmutex/pgmutex/engine"
)

// offerTime is how long a freed lock is kept for the one at the head of the line
// before the next one is told.
const offerTime = time.Second

// A line is the clients that wait for one name, in the order in which they came.
//
// An available lock is offered to the first that has not been passed over. Who
// does not take it in time is passed over: it keeps its place but blocks nobody
// and is offered nothing, until it makes itself heard by another attempt. So a
// dead client costs the line one offerTime, once, and a slow one does not lose
// its turn. (Throwing it out instead would let a client that polls slower than
// offerTime starve at the end of a busy line.)
type line struct {
	tickets []*ticket
	offer   *alarm  // runs while offered is set
	offered *ticket // one at a time
}

type ticket struct {
	process *process
	shared  bool // what its latest attempt asked for
	passed  bool
}

func (l *line) of(p *process) *ticket {
	for _, t := range l.tickets {
		if t.process == p {
			return t
		}
	}
	return nil
}

// head is the first ticket that counts, nil if there is none.
func (l *line) head() *ticket {
	for _, t := range l.tickets {
		if !t.passed {
			return t
		}
	}
	return nil
}

// withdraw ends the offer that is out, if any, without blame.
func (l *line) withdraw() {
	if l.offered != nil {
		l.offer.stop()
		l.offer, l.offered = nil, nil
	}
}

// ahead counts those who go before p: all of them if p has no place yet.
func (s *Store) ahead(name string, p *process) int {
	n := 0
	if l := s.lines[name]; l != nil {
		for _, t := range l.tickets {
			if t.process == p {
				break
			}
			if !t.passed {
				n++
			}
		}
	}
	return n
}

// join gives p a place, or confirms the one it has, and returns its number.
func (s *Store) join(now time.Time, name string, p *process, shared bool) int {
	l := s.lines[name]
	if l == nil {
		l = &line{}
		s.lines[name] = l
	}
	t := l.of(p)
	if t == nil {
		t = &ticket{process: p}
		l.tickets = append(l.tickets, t)
	}
	t.shared, t.passed = shared, false
	if l.head() != t {
		// The lock may be free, and the head asleep or dead: it gets its chance,
		// and its time starts to run. The head itself needs no hint from its own
		// attempt; with one it would try again at once, for ever, in front of a
		// stale row that it does not dare to take.
		s.offer(now, name)
	}
	return s.ahead(name, p) + 1
}

// granted brings the line up to date after a grant: p has what it stood for, and
// the offer is void, whoever barged in. Further shared waiters can follow a
// shared grant at once.
func (s *Store) granted(now time.Time, p *process, req *engine.Request) {
	name := req.Term.Name
	l := s.lines[name]
	if l == nil {
		return
	}
	l.withdraw()
	if req.Wait {
		s.leave(now, name, p)
	} else {
		s.offer(now, name)
	}
}

// leave takes p out of the line and passes its offer on.
func (s *Store) leave(now time.Time, name string, p *process) {
	l := s.lines[name]
	if l == nil {
		return
	}
	t := l.of(p)
	if t == nil {
		return
	}
	if l.offered == t {
		l.withdraw()
	}
	l.tickets = slices.DeleteFunc(l.tickets, func(other *ticket) bool { return other == t })
	if len(l.tickets) == 0 {
		delete(s.lines, name)
		return
	}
	s.offer(now, name)
}

// open says whether nobody but stale holders keeps out such a request.
func (s *Store) open(now time.Time, name string, shared bool) bool {
	return !slices.ContainsFunc(s.rows[name], func(r *row) bool {
		return (!shared || !r.term.Shared) && !r.stale(now)
	})
}

// offer offers name to the head of its line if it is open and not offered yet.
// Call it whenever either may have become true.
func (s *Store) offer(now time.Time, name string) {
	l := s.lines[name]
	if l == nil || l.offered != nil {
		return
	}
	t := l.head()
	if t == nil {
		// Only sleepers: a hint to all of them costs little, and whoever comes
		// first is in order again.
		if s.open(now, name, true) {
			for _, t := range l.tickets {
				s.hint(t.process, name)
			}
		}
		return
	}
	if !s.open(now, name, t.shared) {
		return
	}
	l.offered = t
	l.offer = t.process.after(offerTime, func(now time.Time) {
		l.offer, l.offered = nil, nil
		if !s.open(now, name, t.shared) {
			return // the holder came back; t is not to blame
		}
		t.passed = true
		if l.head() != nil {
			s.offer(now, name)
		}
	})
	s.hint(t.process, name)
}

func (s *Store) hint(p *process, name string) {
	if !s.faultsOf(p).NoHints {
		s.tell(p, func(sink engine.Sink) { sink.Freed(name) })
	}
}

// Leave implements [engine.Queuer].
func (p *process) Leave(ctx context.Context, names []string) error {
	names = slices.Clone(names)
	_, _, err := exchange(ctx, p, "", func(now time.Time) struct{} {
		for _, name := range names {
			p.store.leave(now, name, p)
		}
		return struct{}{}
	})
	return err
}
