package keeper

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pgmutex/pgmutex/engine"
)

// A Lease is one granted term. Its methods may be called concurrently.
type Lease struct {
	keeper     *Keeper
	term       engine.Term
	acquiredAt time.Time
	granted    time.Duration // elapsed when the grant arrived
	trust      time.Duration
	heartbeat  time.Duration
	alertAfter time.Duration
	values     context.Context
	owner      any
	onEnd      func(*Ending)

	// deadline is the local time at which the lease ends by itself. It only
	// grows, and only under mu while ending is unset; it is read without.
	deadline atomic.Int64
	ending   atomic.Pointer[Ending]
	mu       sync.Mutex

	// silence is why the last renewal was not answered, where the engine says
	// more than that it could not be.
	silence atomic.Pointer[engine.LossReason]

	// overruled is how the lease had really ended when its owner gave it back,
	// where the store tells that it was no longer there.
	overruled atomic.Pointer[Ending]

	// Guarded by Keeper.mu.
	next      time.Duration // when to renew
	confirmed time.Duration // sending time of the last confirmed request
	late      bool          // an alert stands
	removal   *unsettled    // set once the owner has given the term back
}

// An Ending says how a lease ended; there is one for each lease.
type Ending struct {
	Released bool // given back by its owner
	Closed   bool // left to lapse when the client was closed
	Err      error

	gone bool // certainly no longer in the store

	mu     sync.Mutex
	reason engine.LossReason
	by     string
}

// Lost tells whether the lease ended against its owner's will.
func (e *Ending) Lost() bool { return !e.Released && !e.Closed }

// Reason returns why the lease was lost and who ended it, as far as is known.
// It may change once, within a second of the end.
func (e *Ending) Reason() (engine.LossReason, string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.reason, e.by
}

// refine replaces what was known at the end by what the store says.
func (e *Ending) refine(s engine.Standing) {
	if s.Health != engine.Gone || s.Reason == "" {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.reason = s.Reason
	if s.By != "" {
		e.by = s.By
	}
}

// Term returns the term. Token is fixed from the grant on.
func (l *Lease) Term() engine.Term { return l.term }

// Owner returns what the lease was asked for by.
func (l *Lease) Owner() any { return l.owner }

// AcquiredAt returns the time of the grant by the store's clock.
func (l *Lease) AcquiredAt() time.Time { return l.acquiredAt }

// Held tells whether the lease may be trusted at this moment. It reads the
// clock itself, so it is right even while no goroutine of ours gets to run.
// Once false it stays false.
func (l *Lease) Held() bool { return l.Ended() == nil }

// Ended returns how the lease ended, nil while it is held.
func (l *Lease) Ended() *Ending {
	if e := l.ending.Load(); e != nil {
		return e
	}
	if l.left() > 0 {
		return nil
	}
	// The deadline has passed. A renewal may be prolonging it at this moment,
	// having read the clock before it did; whoever gets the mutex first decides
	// for both, and for ever.
	l.expire()
	return l.ending.Load()
}

// Loss returns how the lease was lost, nil if it was not. Unlike Ended, it knows
// what only the release found out.
func (l *Lease) Loss() *Ending {
	if e := l.overruled.Load(); e != nil {
		return e
	}
	if e := l.Ended(); e != nil && e.Lost() {
		return e
	}
	return nil
}

// Remaining returns how long the lease may be trusted without another
// renewal; not above zero once it has ended.
func (l *Lease) Remaining() time.Duration {
	if l.Ended() != nil {
		return 0
	}
	return l.left()
}

// UntilStale returns how long the lock is out of reach for everybody else, by
// the last confirmed request; negative once it no longer is.
func (l *Lease) UntilStale() time.Duration { return l.left() + l.trust/2 }

// rival is the lease as a contender of the same client sees it, who has not asked
// the store: it names no heartbeat. Called without Keeper.mu.
func (l *Lease) rival() *engine.Rival {
	l.keeper.mu.Lock()
	confirmed := l.confirmed
	l.keeper.mu.Unlock()
	return &engine.Rival{
		Holder:     engine.Label(l.term.ID),
		ID:         l.term.ID,
		Since:      l.acquiredAt,
		Age:        l.keeper.elapsed() - confirmed,
		StaleAfter: l.term.StaleAfter,
		Interval:   l.heartbeat,
	}
}

func (l *Lease) left() time.Duration {
	return time.Duration(l.deadline.Load()) - l.keeper.elapsed()
}

// prolong moves the deadline on the strength of a request sent at that time
// which was confirmed. It is false when the lease has ended, by its deadline or
// otherwise: a confirmation that comes too late revives nothing.
func (l *Lease) prolong(sent time.Duration) bool {
	l.mu.Lock()
	if l.ending.Load() == nil && l.left() > 0 {
		l.deadline.Store(max(l.deadline.Load(), int64(sent+l.trust)))
		l.mu.Unlock()
		return true
	}
	l.mu.Unlock()
	l.expire()
	return false
}

// expire ends the lease if its deadline has passed.
func (l *Lease) expire() {
	l.mu.Lock()
	if l.ending.Load() != nil || l.left() > 0 {
		l.mu.Unlock()
		return
	}
	l.finish(l.expired())
}

// end ends the lease and returns the ending in force, which is an earlier one
// if there was one.
func (l *Lease) end(e *Ending) *Ending {
	l.mu.Lock()
	if earlier := l.ending.Load(); earlier != nil {
		l.mu.Unlock()
		return earlier
	}
	if !e.Lost() && l.left() <= 0 {
		// Given back after the deadline: the work was not covered to its end.
		e = l.expired()
	}
	l.finish(e)
	return e
}

// finish is the one place where a lease ends. It unlocks mu: telling the owner
// comes before anything else, and outside of every mutex.
func (l *Lease) finish(e *Ending) {
	l.ending.Store(e)
	l.mu.Unlock()
	l.onEnd(e)
	l.keeper.ended(l, e)
}

func (l *Lease) expired() *Ending {
	if r := l.silence.Load(); r != nil && *r != "" {
		return &Ending{reason: *r}
	}
	return &Ending{reason: engine.LostExpired}
}
