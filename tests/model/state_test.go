package model

import (
	"cmp"
	"fmt"
	"slices"
)

const (
	clients = 2
	slots   = 2 // terms that one client may be concerned with at a time
	strays  = 2 // requests on their way that nobody waits for any more
)

// A term names one acquisition: 0 is nobody's, else 1 + slots*client + slot. A
// slot is used again when nothing refers to its last term any more.
type term uint8

func termOf(client, slot int) term { return term(1 + slots*client + slot) }

func (t term) client() int { return int(t-1) / slots }
func (t term) slot() int   { return int(t-1) % slots }

func (t term) String() string {
	if t == 0 {
		return "none"
	}
	return fmt.Sprintf("%c%d", 'a'+t.client(), t.slot()+1)
}

// A beat names one heartbeat of a row. The number has a meaning within one state
// only; see canonical.
type beat uint8

const (
	noBeat beat = iota
	rowsBeat
	oldTake   // no longer in the row, like all that follow, and equal to no other
	oldWatch  // likewise
	oldAnswer // likewise
	oldBoth   // both watched and told by an answer
)

// state is everything that the future depends on. Times are kept as ages or as
// what is left, in ticks, and are capped where more makes no difference.
type state struct {
	row     row
	clients [clients]client
	strays  [strays]request // sorted
	calm    int8            // ticks since the last disturbance of a clock
}

// row is the row of the one lock.
type row struct {
	term   term // 0: no row
	age    int8 // of the heartbeat, by the server's clock
	beat   beat
	stale  int8 // the holder's promise
	jumped bool // the server's clock made a great step since the heartbeat
}

// client is one process and what it knows.
type client struct {
	slot  [slots]slot
	ask   ask
	renew call
	watch watch
	guard term // of its open guarded transaction, which the server knows
}

type slotState uint8

const (
	free      slotState = iota
	asked               // an attempt is under way
	held                // left is the rest of its trust
	owed                // it must not stay in the store
	ghost               // owed, and its request may be on its way still
	forgotten           // owed until it was stale whatever happens, or of a process that crashed
)

type slot struct {
	state slotState
	left  int8 // of the trust in what is held
}

type phase uint8

const (
	idle phase = iota
	sent       // the request is on its way
	read       // the server has read the row and not yet written: see setup.split
	answered
)

type answer uint8

const (
	none answer = iota
	granted
	busy
	yes // written, or removed
	no  // no such term
)

// call is a heartbeat, and the half of an attempt that both have.
type call struct {
	phase  phase
	slot   uint8
	since  int8 // it was sent, by the client's clock
	answer answer
}

// ask is an attempt to acquire.
type ask struct {
	call
	request request
	// What the answer tells of the holder.
	beat  beat
	age   int8
	stale int8
}

// request is what the server is asked for.
type request struct {
	kind  kind
	term  term
	judge bool // the server's clock decides whether the row is stale
	take  beat // this heartbeat may be taken over
	own   bool // the client's other term may be taken over

	// With setup.split, once the row has been read.
	read      bool // it may be taken over, or there was none
	seen      beat // the heartbeat that was read
	overtaken bool // somebody else was granted the lock since
}

type kind uint8

const (
	nothing kind = iota
	acquire
	renew
	remove
)

// watch is a waiter's own judgement of a holder, as in internal/keeper.
type watch struct {
	seen  bool
	beat  beat
	left  int8 // until it is stale, by the waiter's clock
	since int8 // the latest look was sent
}

// canonical makes states equal that differ in names only: of a client's slots, of
// heartbeats, of strays, and of the clients where they are alike.
func (s *state) canonical(alike bool) {
	for c := range s.clients {
		for i := range s.clients[c].slot {
			if sl := &s.clients[c].slot[i]; sl.state == forgotten && s.unused(c, i) {
				sl.state = free
			}
		}
		if s.slotOrder(c, 0) > s.slotOrder(c, 1) {
			s.swapSlots(c)
		}
	}
	if alike {
		if a, b := s.clientOrder(0), s.clientOrder(1); slices.Compare(a[:], b[:]) > 0 {
			s.swapClients()
		}
	}
	s.renumber()
	slices.SortFunc(s.strays[:], func(a, b request) int { return cmp.Compare(a.order(), b.order()) })
}

func (s *state) slotOrder(c, i int) int {
	sl := s.clients[c].slot[i]
	n := int(sl.state)<<9 | int(sl.left)<<1 | bit(s.row.term == termOf(c, i))
	if s.stray(termOf(c, i)) {
		n |= 1 << 14
	}
	return n
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (s *state) stray(t term) bool {
	for _, r := range s.strays {
		if r.kind != nothing && r.term == t {
			return true
		}
	}
	return false
}

// unused tells whether nothing refers to a term any more.
func (s *state) unused(c, i int) bool {
	t := termOf(c, i)
	for _, r := range s.strays {
		if r.kind != nothing && (r.term == t || r.own && r.term == termOf(c, 1-i)) {
			return false
		}
	}
	k := &s.clients[c]
	return s.row.term != t && k.guard != t && (k.renew.phase == idle || int(k.renew.slot) != i)
}

// rename replaces terms everywhere but in the clients' slot numbers.
func (s *state) rename(to func(term) term) {
	change := func(t *term) {
		if *t != 0 {
			*t = to(*t)
		}
	}
	change(&s.row.term)
	for i := range s.strays {
		change(&s.strays[i].term)
	}
	for c := range s.clients {
		change(&s.clients[c].guard)
		change(&s.clients[c].ask.request.term)
	}
}

func (s *state) swapSlots(c int) {
	s.rename(func(t term) term {
		if t.client() == c {
			return termOf(c, 1-t.slot())
		}
		return t
	})
	k := &s.clients[c]
	k.slot[0], k.slot[1] = k.slot[1], k.slot[0]
	for _, call := range []*call{&k.ask.call, &k.renew} {
		if call.phase != idle {
			call.slot = 1 - call.slot
		}
	}
}

func (s *state) swapClients() {
	s.rename(func(t term) term { return termOf(1-t.client(), t.slot()) })
	s.clients[0], s.clients[1] = s.clients[1], s.clients[0]
}

// clientOrder is a key to tell the clients apart by, whatever their names.
func (s *state) clientOrder(c int) (key [24]int8) {
	k := &s.clients[c]
	order := key[:0]
	for i, sl := range k.slot {
		order = append(order, int8(sl.state), sl.left, int8(bit(s.row.term == termOf(c, i))), int8(bit(s.stray(termOf(c, i)))))
	}
	for _, call := range [...]call{k.ask.call, k.renew} {
		order = append(order, int8(call.phase), int8(call.slot), call.since, int8(call.answer))
	}
	_ = append(order, int8(bit(k.watch.seen)), k.watch.left, k.watch.since, k.ask.age, k.ask.stale, int8(bit(k.guard != 0)))
	return key
}

func (r request) order() int {
	return int(r.kind)<<12 | int(r.term)<<9 | int(r.take)<<6 | bit(r.judge)<<5 | bit(r.own)<<4 |
		bit(r.read)<<2 | bit(r.overtaken)
}

// renumber gives heartbeats their numbers. Those that have left the row never
// come back, so of them only equality within one client matters.
func (s *state) renumber() {
	now := s.row.beat
	if s.row.term == 0 {
		now = noBeat
	}
	fix := func(b *beat, old beat) {
		switch {
		case *b == noBeat:
		case *b == now:
			*b = rowsBeat
		default:
			*b = old
		}
	}
	for c := range s.clients {
		k := &s.clients[c]
		same := k.watch.beat != noBeat && k.watch.beat == k.ask.beat
		watched, told := oldWatch, oldAnswer
		if same {
			watched, told = oldBoth, oldBoth
		}
		fix(&k.watch.beat, watched)
		fix(&k.ask.beat, told)
		if k.watch.beat == oldWatch {
			k.watch.left = 0 // it will never be had
		}
		fix(&k.ask.request.take, oldTake)
		fix(&k.ask.request.seen, oldTake)
	}
	for i := range s.strays {
		fix(&s.strays[i].take, oldTake)
		fix(&s.strays[i].seen, oldTake)
	}
	if now != noBeat {
		s.row.beat = rowsBeat
	} else {
		s.row.beat = noBeat
	}
}
