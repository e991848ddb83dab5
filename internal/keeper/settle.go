package keeper

import (
	"context"
	"time"

	"github.com/pgmutex/pgmutex/engine"
)

// An unsettled term is one that must not be in the store any more and perhaps
// still is.
type unsettled struct {
	term  engine.Term
	until time.Duration // stale by then whatever happens, so nothing is left to do
	// A ghost is an attempt whose answer never came. It may still be on its way
	// to the store, so not finding it there settles nothing.
	ghost bool

	lease *Lease        // whose release it is; nil for attempts that never became one
	done  chan struct{} // closed once settled

	// Guarded by Keeper.mu.
	next  time.Duration
	tries int
	sent  bool  // a removal may have been carried out without our learning of it
	err   error // of the last try
}

func (l *Lease) unsettled(until time.Duration) *unsettled {
	return &unsettled{term: l.term, until: until, lease: l, done: make(chan struct{})}
}

// over tells whether nobody works under the term any more: Release puts it on
// the books a moment before the lease ends.
func (u *unsettled) over() bool { return u.lease == nil || u.lease.ending.Load() != nil }

// settle takes charge of an unsettled term.
func (k *Keeper) settle(u *unsettled) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unsettled[u.term.ID] = u
	u.next = k.elapsed()
	k.schedule(u.next)
}

// ghosts returns the IDs of our own terms for name that are over and may be in
// the store all the same, so that a new attempt may take their place. The first
// removal of a lease is left alone: to find its term replaced would look as if
// somebody else had ended it.
func (k *Keeper) ghosts(name string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var ids []string
	for id, u := range k.unsettled {
		if u.term.Name == name && (u.lease == nil || u.sent) {
			ids = append(ids, id)
		}
	}
	return ids
}

// removeDue starts the removal of what is due, and returns when the next one
// will be. Called with mu held.
func (k *Keeper) removeDue(now time.Duration) time.Duration {
	next := never
	var batch []*unsettled
	for _, u := range k.unsettled {
		switch {
		case !u.over():
		case now >= u.until:
			k.forget(u)
		case u.next <= now:
			batch = append(batch, u)
		default:
			next = min(next, u.next, u.until)
		}
	}
	if k.removing || len(batch) == 0 {
		return next
	}
	k.removing = true
	k.work.Add(1)
	go func() {
		defer k.work.Done()
		ctx, cancel := context.WithTimeout(k.stop, k.cfg.ReleaseTimeout)
		defer cancel()
		k.remove(ctx, distinct(batch))
		k.mu.Lock()
		defer k.mu.Unlock()
		k.removing = false
		k.schedule(k.elapsed())
	}()
	return next
}

// distinct leaves one term for each name, which is what an engine's batch may
// hold; the others' turn comes right after.
func distinct(batch []*unsettled) []*unsettled {
	seen := map[string]bool{}
	n := 0
	for _, u := range batch {
		if !seen[u.term.Name] {
			seen[u.term.Name] = true
			batch[n] = u
			n++
		}
	}
	return batch[:n]
}

// remove makes one call for the batch and takes in what it says.
func (k *Keeper) remove(ctx context.Context, batch []*unsettled) {
	removals := k.engine.Release(ctx, terms(batch))
	for i, u := range batch {
		var r engine.Removal
		if i < len(removals) {
			r = removals[i]
		}
		k.removed(u, r)
	}
}

func terms(batch []*unsettled) []engine.Term {
	terms := make([]engine.Term, len(batch))
	for i, u := range batch {
		terms[i] = u.term
	}
	return terms
}

// releaseBatch makes one call for terms of several callers.
func (k *Keeper) releaseBatch(batch []*unsettled) []engine.Removal {
	return k.engine.Release(k.releaseFor.within(k.cfg.ReleaseTimeout), terms(batch))
}

// giveBack makes the first removal of a lease, in the background where its owner
// waits for no confirmation; false when closing is over. What is given back at the
// same time travels in one call.
func (k *Keeper) giveBack(u *unsettled, lost bool) bool {
	switch {
	case lost:
		return k.releases.put(u)
	case k.detached:
		return k.during(func() { k.remove(k.releaseFor.within(k.cfg.ReleaseTimeout), []*unsettled{u}) })
	}
	put := false
	return k.during(func() { put = k.releases.now(u) }) && put
}

// removed takes in what came of one removal.
func (k *Keeper) removed(u *unsettled, r engine.Removal) {
	k.mu.Lock()
	settled := r.Outcome == engine.Removed || r.Outcome == engine.Absent && !u.ghost
	// The very first removal did not find a term that had been granted, so
	// somebody else had ended it before.
	lost := r.Outcome == engine.Absent && settled && !u.sent
	if settled {
		defer k.settled(u)
	} else {
		u.sent = u.sent || r.Outcome == engine.Unconfirmed
		u.err = r.Err
		u.next = k.elapsed() + backoff(u.tries)
		u.tries++
		k.schedule(min(u.next, u.until))
	}
	k.mu.Unlock()

	l := u.lease
	if l == nil || !settled || l.ending.Load().Lost() {
		return
	}
	if lost {
		e := &Ending{reason: engine.LostRowGone, gone: true}
		l.overruled.Store(e)
		k.spawn(func() { k.explain(l, e) })
		return
	}
	released := l.event(Released)
	released.Took = k.elapsed() - l.granted
	k.cfg.Observe(released)
}

// settled forgets the term and tells who waits for it.
func (k *Keeper) settled(u *unsettled) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.forget(u)
}

// forget is settled for those who hold mu.
func (k *Keeper) forget(u *unsettled) {
	if k.unsettled[u.term.ID] != u {
		return
	}
	delete(k.unsettled, u.term.ID)
	if u.done != nil {
		close(u.done)
	}
	if l := k.lines[u.term.Name]; l != nil && !l.queued {
		l.nudge()
	}
	k.checkIdle()
}

const backoffLeast, backoffMost = 50 * time.Millisecond, 5 * time.Second

// backoff returns how long to wait after that many tries have failed.
func backoff(tries int) time.Duration {
	return jitter(min(backoffLeast<<min(tries, 16), backoffMost))
}

// Removal is what came of giving a lease back.
type Removal uint8

const (
	Confirmed  Removal = iota // certainly gone from the store
	InProgress                // not confirmed in time; it goes on in the background
	WasLost                   // the lease had ended before, see Ended
	WasClosed                 // the client was closed before
)

// Release gives the lease back: it ends here and now, and its term is removed
// from the store. It waits for the confirmation no longer than the release
// timeout, whether ctx has ended or not. A lease that was lost is cleaned up in
// the background. Further calls wait for the same removal.
func (l *Lease) Release(context.Context) (Removal, error) {
	k := l.keeper
	began := k.elapsed()
	// The removal is on the books before the lease is off them, or Close could
	// find nothing left to wait for in between.
	k.mu.Lock()
	u := l.removal
	first := u == nil
	if first {
		u = l.unsettled(l.confirmed + l.term.StaleAfter)
		// Not due for run as long as the first try, made here, may be under way.
		u.next = k.elapsed() + 2*k.cfg.ReleaseTimeout
		l.removal = u
		k.unsettled[u.term.ID] = u
	}
	k.mu.Unlock()

	e := l.end(&Ending{Released: true})
	if first && (e.Closed || e.gone || !k.giveBack(u, e.Lost())) {
		k.settled(u) // nothing is to be removed, or nobody is left to do it
		if !e.Lost() {
			return WasClosed, nil
		}
	}
	if e.Closed {
		return WasClosed, nil
	}
	if e.Lost() {
		return WasLost, nil
	}

	k.awaitRemoval(u, began)
	select {
	case <-u.done: // whatever else has happened, by chance or long ago
		if l.overruled.Load() != nil {
			return WasLost, nil
		}
		return Confirmed, nil
	default:
	}
	k.mu.Lock()
	err := u.err
	k.mu.Unlock()
	if err == nil {
		err = errUnanswered
	}
	if first {
		unconfirmed := l.event(ReleaseUnconfirmed)
		unconfirmed.Err, unconfirmed.Took = err, k.elapsed()-l.granted
		k.cfg.Observe(unconfirmed)
	}
	return InProgress, err
}

// awaitRemoval waits for the confirmation until the release timeout, counted from
// began, or the end of the client.
func (k *Keeper) awaitRemoval(u *unsettled, began time.Duration) {
	select {
	case <-u.done:
		return
	default:
	}
	timeout := time.NewTimer(k.cfg.ReleaseTimeout - (k.elapsed() - began))
	defer timeout.Stop()
	select {
	case <-u.done:
	case <-timeout.C:
		if k.releases.withdraw(u) { // from now on it is run that tries
			k.removed(u, engine.Removal{Err: context.DeadlineExceeded})
		}
	case <-k.stop.Done():
	}
}
