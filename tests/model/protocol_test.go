package model

// acquire is all that a client does to get the lock: internal/keeper/attempt.go,
// contend.go and watch.go.
func (w *mover) acquire(c int) {
	k := &w.s.clients[c]
	switch k.ask.phase {
	case idle:
		w.attempt(c)
		if k.watch.seen {
			n := *w.s
			n.clients[c].watch = watch{}
			w.to("%c waits no longer", n, 'a'+c)
		}
		return
	case sent, read:
		w.execute(k.ask.request, func(n *state, r request, a answer) {
			k := &n.clients[c]
			k.ask.request = r
			switch a {
			case none:
				k.ask.phase = sent
				if r.read {
					k.ask.phase = read
				}
				return
			case busy:
				k.ask.beat, k.ask.age, k.ask.stale = n.row.beat, min(n.row.age, w.longestPromise()), n.row.stale
				if !w.slow {
					w.told(n, c)
					return
				}
			}
			k.ask.request = request{}
			k.ask.phase, k.ask.answer = answered, a
		})
	case answered:
		w.hear(c)
	}
	w.giveUp(c)
}

// attempt sends a request for a term that was never used.
func (w *mover) attempt(c int) {
	k := &w.s.clients[c]
	fresh := -1
	for i, sl := range k.slot {
		if sl.state == held {
			return // its own goroutines wait behind one another
		}
		if sl.state == free && w.s.unused(c, i) {
			fresh = i
		}
	}
	if fresh < 0 {
		return
	}
	t := termOf(c, fresh)
	r := request{kind: acquire, term: t, judge: true}
	if !w.isPython(c) {
		other := k.slot[1-fresh].state
		r.own = other == owed || other == ghost
		r.judge = !k.watch.seen
		if k.watch.seen && k.watch.left == 0 && (k.watch.beat == rowsBeat || w.bug == takeAny) {
			r.take = k.watch.beat // another one would not be found
		}
	}
	n := *w.s
	n.clients[c].slot[fresh] = slot{state: asked}
	n.clients[c].ask = ask{call: call{phase: sent, slot: uint8(fresh)}, request: r}
	how := asks
	if r.take != noBeat {
		how += ", having watched one heartbeat for long enough"
	}
	w.to(how, n, int(t))
}

// execute is acquire.sql and take.sql. With split it takes two steps: the row is
// read, and later it is written if it is still the one that was read.
func (w *mover) execute(r request, then func(*state, request, answer)) {
	at := &w.s.row
	if at.jumped && r.judge && !r.read {
		return // see setup.unlooked
	}
	n := *w.s
	switch {
	case !r.read && !w.open(r):
		then(&n, r, busy)
		w.to("the server answers %v: held by %v", n, int(r.term), int(at.term))
	case !r.read && w.split:
		r.read, r.seen = true, at.beat
		then(&n, r, none)
		w.to("the server reads the row for %v: it can be had", n, int(r.term))
	case r.read && at.term != 0 && at.beat != r.seen && w.bug != takeUnseen:
		r.read, r.seen = false, noBeat
		then(&n, r, none)
		w.to("the row has changed since it was read for %v: once more", n, int(r.term))
	case w.guarded():
		// It waits for the transaction, or gives up.
	default:
		w.grant(r, then)
	}
}

// open tells whether the row as it is may be taken over, or there is none.
func (w *mover) open(r request) bool {
	at := &w.s.row
	if at.term == 0 {
		return true
	}
	c := r.term.client()
	promise := at.stale
	switch {
	case w.isPython(c):
		promise = w.python
	case w.bug == ownStale:
		promise = w.stale[c]
	}
	return r.own && at.term == termOf(c, 1-r.term.slot()) ||
		r.take != noBeat && (r.take == at.beat || w.bug == takeAny) ||
		r.judge && at.age >= promise
}

// fresh is a heartbeat that nobody has seen yet.
const fresh beat = 100

func (w *mover) grant(r request, then func(*state, request, answer)) {
	n := *w.s
	c := r.term.client()
	n.row = row{term: r.term, beat: fresh, stale: w.promise(c)}
	// The requests that have drawn their tokens already have lower ones.
	if w.bug == earlyToken {
		for i := range n.strays {
			n.strays[i].overtaken = n.strays[i].read
		}
		for c := range n.clients {
			ask := &n.clients[c].ask
			ask.request.overtaken = ask.phase == read
		}
	}
	then(&n, r, granted)
	m := w.to("the server grants the lock to %v", n, int(r.term))
	if w.s.row.term != 0 {
		m.label = label{"the server takes the lock from %v and grants it to %v", [2]int{int(w.s.row.term), int(r.term)}}
	}
	if r.overtaken {
		m.broken |= order
	}
}

// hear is what a client makes of the answer to its attempt.
func (w *mover) hear(c int) {
	n := *w.s
	k := &n.clients[c]
	a := k.ask
	t := int(termOf(c, int(a.slot)))
	if a.answer == busy {
		w.told(&n, c)
		w.to("%v hears that the lock is held", n, t)
		return
	}
	k.ask = ask{}
	sl := &k.slot[a.slot]
	left := w.trust[c] - a.since
	if w.bug == grantFromReply {
		left = w.trust[c]
	}
	k.watch = watch{}
	switch {
	case w.isPython(c), w.bug == lateGrant && left <= 0:
		*sl = slot{state: held, left: 1}
	case left > 0:
		*sl = slot{state: held, left: left}
	default:
		*sl = slot{state: owed}
		w.to("%v hears of its grant, too late to trust it", n, t)
		return
	}
	w.to("%v hears of its grant, and believes", n, t)
}

// told takes in that the lock is held.
func (m *setup) told(s *state, c int) {
	k := &s.clients[c]
	a := k.ask
	k.ask = ask{}
	k.slot[a.slot] = slot{}
	if !m.isPython(c) {
		k.watch.look(m, a)
	}
}

// look is watch.look of internal/keeper.
func (w *watch) look(m *setup, a ask) {
	since := min(a.since, m.longestLook())
	if w.seen && a.beat == w.beat {
		w.since = since
		return
	}
	age := a.age
	if m.bug != negativeAge {
		age = max(age, 0)
	}
	if w.seen && m.bug != believeAge && len(m.steps) > 0 {
		age = min(age, w.since) // less than what is told only if the server's clock has made a step
		if m.bug != believeLook {
			age = min(age, a.stale/3)
		}
	}
	left := a.stale - age
	if m.bug == watchFromRequest {
		left -= a.since
	}
	*w = watch{seen: true, beat: a.beat, left: max(left, 0), since: since}
}

// giveUp ends the wait for an answer: a context, a time limit, a connection that
// died. The request may still be on its way, or have been carried out.
func (w *mover) giveUp(c int) {
	n := *w.s
	t := termOf(c, int(n.clients[c].ask.slot))
	w.unanswered(&n, c)
	w.to("%v gives up waiting for the answer", n, int(t))
}

func (m *setup) unanswered(s *state, c int) {
	k := &s.clients[c]
	if k.ask.phase != answered {
		m.abandon(s, k.ask.request)
	}
	k.slot[k.ask.slot] = slot{state: ghost}
	if m.bug == unknownIsBusy {
		k.slot[k.ask.slot] = slot{}
	}
	k.ask = ask{}
}

// renew is the heartbeat of what a client holds: internal/keeper/renew.go.
func (w *mover) renew(c int) {
	k := &w.s.clients[c]
	t := termOf(c, int(k.renew.slot))
	switch k.renew.phase {
	case idle:
		for i, sl := range k.slot {
			if sl.state == held {
				n := *w.s
				n.clients[c].renew = call{phase: sent, slot: uint8(i)}
				w.to("%v sends a heartbeat", n, int(termOf(c, i)))
			}
		}
		return
	case sent:
		w.executeRenew(request{kind: renew, term: t}, func(n *state, a answer) {
			n.clients[c].renew = call{phase: answered, slot: k.renew.slot, since: k.renew.since, answer: a}
			if a == no {
				n.clients[c].renew.since = 0
			}
		})
	case answered:
		w.confirm(c)
	}
	n := *w.s
	if k.renew.phase == sent {
		w.abandon(&n, request{kind: renew, term: t})
	}
	n.clients[c].renew = call{}
	w.lapse(&n, c, int(k.renew.slot))
	w.to("the answer about the heartbeat of %v does not come", n, int(t))
}

func (w *mover) executeRenew(r request, then func(*state, answer)) {
	at := &w.s.row
	n := *w.s
	var broken property
	switch {
	case at.term == r.term, at.term != 0 && w.bug == renewByName:
		n.row.age, n.row.beat, n.row.jumped = 0, fresh, false
		if at.term != r.term {
			broken = own
		}
	case at.term == 0 && w.bug == renewInserts:
		n.row = row{term: r.term, beat: fresh, stale: w.promise(r.term.client())}
	default:
		then(&n, no)
		w.to("the server finds nothing to renew for %v", n, int(r.term))
		return
	}
	then(&n, yes)
	w.to("the server writes a heartbeat for %v", n, int(r.term)).broken |= broken
}

func (w *mover) confirm(c int) {
	k := &w.s.clients[c]
	a := k.renew
	n := *w.s
	n.clients[c].renew = call{}
	sl := &n.clients[c].slot[a.slot]
	t := int(termOf(c, int(a.slot)))
	left := w.trust[c] - a.since
	if w.bug == renewFromReply {
		left = w.trust[c]
	}
	var broken property
	switch {
	case a.answer == no && sl.state == held:
		*sl = slot{} // certainly gone
	case a.answer == yes && sl.state == held && (sl.left > 0 || w.bug == fenceWaits || w.bug == noFence):
		sl.left = max(sl.left, left)
		w.lapse(&n, c, int(a.slot))
	case a.answer == yes && sl.state == owed && w.bug == lateRenewal && left > 0:
		*sl = slot{state: held, left: left}
		broken = final
	}
	if a.answer == no {
		w.to("%v hears that it has lost the lock", n, t)
		return
	}
	w.to("%v hears that its heartbeat was written", n, t).broken |= broken
}

// remove gives back what is held, and removes what is owed: settle.go. What is
// sent and answered is one move, since neither the way there nor the way back
// changes anything; what is not answered is a stray.
func (w *mover) remove(c int) {
	for i, sl := range w.s.clients[c].slot {
		t := termOf(c, i)
		r := request{kind: remove, term: t}
		switch sl.state {
		case held:
			n := *w.s
			w.end(&n, c, i)
			w.to("%v ends its hold", n, int(t))
		case owed, ghost:
			w.executeRemove(r, func(n *state, a answer) {
				if a == yes || sl.state == owed || w.bug == absentSettles {
					n.clients[c].slot[i] = slot{}
				}
			})
			if w.removals {
				n := *w.s
				w.abandon(&n, r)
				w.to("%v sends for its removal and gets no answer", n, int(t))
			}
			if sl.state == ghost {
				n := *w.s
				n.clients[c].slot[i] = slot{state: forgotten}
				w.to("%v is stale by now whatever happens, and forgotten", n, int(t))
			}
		}
	}
}

func (w *mover) executeRemove(r request, then func(*state, answer)) {
	at := &w.s.row
	n := *w.s
	if at.term != r.term && (at.term == 0 || w.bug != removeByName) {
		then(&n, no)
		w.to("the server finds nothing to remove for %v", n, int(r.term))
		return
	}
	if w.guarded() {
		return // it waits for the transaction
	}
	n.row = row{}
	then(&n, yes)
	m := w.to("the server removes the row of %v", n, int(at.term))
	if at.term != r.term {
		m.broken |= own
	}
}
