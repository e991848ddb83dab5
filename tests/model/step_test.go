package model

// move is one step from a state, and the property that it breaks, if any.
type move struct {
	label  label
	next   state
	broken property
}

// moves lists all that may happen next.
func (m *setup) moves(s *state, list []move) []move {
	w := mover{m, s, list}
	w.clock()
	for c := range s.clients {
		w.acquire(c)
		w.renew(c)
		w.remove(c)
		if m.crashes {
			w.crash(c)
		}
		if m.guards {
			w.guard(c)
		}
	}
	for i := range s.strays {
		if s.strays[i].kind != nothing {
			w.stray(i)
		}
	}
	if m.forgets && s.row.term != 0 {
		n := *s
		n.row = row{}
		w.to("the database loses the row of %v", n, int(s.row.term))
	}
	return w.list
}

type mover struct {
	*setup
	s    *state
	list []move
}

func (w *mover) to(what string, n state, args ...int) *move {
	l := label{what: what}
	copy(l.args[:], args)
	w.list = append(w.list, move{label: l, next: n})
	return &w.list[len(w.list)-1]
}

// clock lets time pass, or disturbs a clock.
func (w *mover) clock() {
	n := *w.s
	w.pass(&n, 1, [clients]int8{1, 1})
	n.calm = min(n.calm+1, w.calm)
	w.to(ticks, n)
	if w.s.calm < w.calm {
		return
	}
	for c := range w.s.clients {
		if w.slips {
			n, by := *w.s, [clients]int8{1, 1}
			by[c] = 0
			w.pass(&n, 1, by)
			n.calm = 0
			w.to(ticks+", and the clock of %c misses it", n, 'a'+c)
		}
		if w.leaps {
			n, by := *w.s, [clients]int8{}
			by[c] = 1
			w.pass(&n, 0, by)
			n.calm = 0
			w.to("the clock of %c leaps by one tick", n, 'a'+c)
		}
	}
	if w.s.row.term == 0 {
		return
	}
	for _, k := range w.steps {
		n := *w.s
		n.row.age = min(n.row.age+k, w.longest())
		n.row.jumped = n.row.jumped || w.unlooked
		n.calm = 0
		if n.row.age >= -w.longest() {
			w.to("the server's clock steps by %+d", n, int(k))
		}
	}
}

// pass lets time pass, on the server's clock and on those of the clients.
func (m *setup) pass(s *state, n int8, on [clients]int8) {
	if s.row.term != 0 {
		s.row.age = min(s.row.age+n, m.longest())
	}
	for c, by := range on {
		k := &s.clients[c]
		for _, call := range []*call{&k.ask.call, &k.renew} {
			if call.phase != idle && call.answer != no {
				call.since = min(call.since+by, m.longestSince(c))
			}
		}
		if k.ask.phase == sent && k.ask.since >= m.trust[c] && !m.patient {
			m.unanswered(s, c)
		}
		if k.watch.seen && k.watch.beat != oldWatch {
			k.watch.left = max(k.watch.left-by, 0)
		}
		if k.watch.seen {
			k.watch.since = min(k.watch.since+by, m.longestLook())
		}
		for i := range k.slot {
			if k.slot[i].state == held && !m.isPython(c) {
				k.slot[i].left = max(k.slot[i].left-by, 0)
				m.lapse(s, c, i)
			}
		}
	}
}

// lapse ends a hold whose deadline has passed. It needs no action of the client:
// Held reads the clock.
func (m *setup) lapse(s *state, c, i int) {
	k := &s.clients[c]
	switch {
	case k.slot[i].state != held || k.slot[i].left > 0:
	case m.bug == noFence:
	case m.bug == fenceWaits && k.renew.phase != idle:
	default:
		m.end(s, c, i)
	}
}

// end ends a hold. What its heartbeat under way is answered is of no interest any
// more.
func (m *setup) end(s *state, c, i int) {
	k := &s.clients[c]
	k.slot[i] = slot{state: owed}
	if m.bug == lateRenewal {
		return
	}
	if k.renew.phase == sent {
		m.abandon(s, request{kind: renew, term: termOf(c, i)})
	}
	k.renew = call{}
}

// crash ends a client's process; another one takes its place. What was sent may
// still arrive.
func (w *mover) crash(c int) {
	k := &w.s.clients[c]
	if *k == (client{}) {
		return
	}
	n := *w.s
	for _, r := range w.requests(c) {
		w.abandon(&n, r)
	}
	n.clients[c] = client{guard: k.guard} // until the server notices
	for i := range k.slot {
		n.clients[c].slot[i] = slot{state: forgotten}
	}
	w.to("%c crashes", n, 'a'+c)
}

// requests lists what a client has on its way to the server.
func (w *mover) requests(c int) []request {
	k := &w.s.clients[c]
	var list []request
	if p := k.ask.phase; p == sent || p == read {
		list = append(list, k.ask.request)
	}
	if k.renew.phase == sent {
		list = append(list, request{kind: renew, term: termOf(c, int(k.renew.slot))})
	}
	return list
}

// abandon lets a request go on by itself. Where there is no room it is lost,
// which may happen to it anyway.
func (m *setup) abandon(s *state, r request) {
	for i := range s.strays {
		if m.strays && s.strays[i].kind == nothing {
			s.strays[i] = r
			return
		}
	}
}

// stray is the fate of a request that nobody waits for: it arrives, however
// late, or is lost.
func (w *mover) stray(i int) {
	r := w.s.strays[i]
	n := *w.s
	n.strays[i] = request{}
	w.to("a request about %v is lost", n, int(r.term))

	switch r.kind {
	case acquire:
		w.execute(r, func(n *state, r request, answer answer) {
			n.strays[i] = request{}
			if answer == none {
				n.strays[i] = r
			}
		})
	case renew:
		w.executeRenew(r, func(n *state, _ answer) { n.strays[i] = request{} })
	case remove:
		w.executeRemove(r, func(n *state, _ answer) { n.strays[i] = request{} })
	}
}

// guard opens and ends transactions that lock the row of their term. Whether it
// is held is not asked: a client that lapsed may try, too.
func (w *mover) guard(c int) {
	k := &w.s.clients[c]
	if k.guard != 0 {
		n := *w.s
		n.clients[c].guard = 0
		w.to("the guarded transaction of %v ends", n, int(k.guard))
		return
	}
	for i, sl := range k.slot {
		t := termOf(c, i)
		switch {
		case sl.state == free || sl.state == asked:
		case w.bug == heldForGuard && sl.state != held, w.bug != heldForGuard && w.s.row.term != t:
		default:
			n := *w.s
			n.clients[c].guard = t
			m := w.to("%v opens a guarded transaction", n, int(t))
			if w.s.clients[1-c].guard != 0 {
				m.broken |= effect
			}
		}
	}
}

// guarded tells whether an open transaction keeps others from the row.
func (w *mover) guarded() bool {
	if w.bug == plainGuard || w.bug == heldForGuard || w.s.row.term == 0 {
		return false
	}
	for c := range w.s.clients {
		if w.s.clients[c].guard == w.s.row.term {
			return true
		}
	}
	return false
}

// verdict says which properties a state breaks by itself.
func (m *setup) verdict(s *state) property {
	var broken property
	believers := 0
	for c := range s.clients {
		for i, sl := range s.clients[c].slot {
			t := termOf(c, i)
			if sl.state == held {
				believers++
				if s.row.term != t && !m.isPython(c) {
					broken |= standing
				}
			}
			if sl.state == free && s.row.term == t {
				broken |= clean
			}
		}
		if w := s.clients[c].watch; w.seen && w.left > m.longestPromise() {
			broken |= live
		}
	}
	if believers > 1 {
		broken |= belief
	}
	return broken
}
