package memory

import (
	"context"
	"errors"
	"time"

	"github.com/pgmutex/pgmutex/engine"
)

// errNoReply is what is left of a call whose reply was dropped.
var errNoReply = errors.New("memory: the connection broke before the reply arrived")

// Faults is what is wrong on the way between a holder and the store. The zero
// value is a healthy way.
type Faults struct {
	// Partitioned keeps requests from arriving and replies from returning. Calls
	// block until the partition heals, and then go on, or until their context
	// ends: their outcome is then unknown, and what had not arrived never does.
	// Nor do hints and notices of losses; they are not made up for, but a healed
	// process is told to look again.
	Partitioned bool

	// DropReplies lets requests be executed and loses the reply: the outcome is
	// unknown at once, as when a connection breaks. For a reply that is waited
	// for in vain, set a long ReplyDelay.
	DropReplies bool

	// Delay is how long a request is on its way. One whose context ends
	// meanwhile is not called back: it arrives in its time, and what it takes
	// stays taken.
	Delay time.Duration

	// ReplyDelay is how long a reply is on its way.
	ReplyDelay time.Duration

	// Fail fails every request on its arrival, before anything is executed: an
	// attempt is Failed, or Refused if Fail matches fs.ErrPermission or
	// errors.ErrUnsupported; a renewal or a release stays unconfirmed.
	Fail error

	// NoHints keeps the holder from being told that a lock was freed, as where
	// notifications do not work: it polls.
	NoHints bool
}

// SetFaults sets what is wrong for the clients with the label holder
// (Client.HolderID), or with "" for all, which also replaces what was set for
// single holders: the latest call counts. Calls that are under way go by the new
// faults from now on. SetFaults("", Faults{}) heals everything.
//
// A client's label is known from its first attempt on, or from the start where
// Options.HolderID is set; before that only faults of "" touch it. Settings of
// the store itself, such as Lose, Expire and SetFaults, are never at fault.
func (s *Store) SetFaults(holder string, f Faults) {
	s.mu.Lock()
	defer s.unlock()
	cut := make(map[*process]bool)
	for p := range s.processes {
		cut[p] = s.faultsOf(p).Partitioned
	}
	if holder == "" {
		s.everybody = f
		clear(s.faults)
	} else {
		s.faults[holder] = f
	}
	for p := range s.processes {
		// As after a reconnect: hints may have been missed.
		if now := s.faultsOf(p); cut[p] && !now.Partitioned && !now.NoHints {
			s.tell(p, func(sink engine.Sink) { sink.Freed("") })
		}
	}
	s.wake()
}

func (s *Store) faultsOf(p *process) Faults {
	if f, ok := s.faults[p.label]; ok {
		return f
	}
	return s.everybody
}

// wake lets everything that is parked look at the world again.
func (s *Store) wake() {
	for changed := range s.parked {
		close(changed)
		delete(s.parked, changed)
	}
}

// park gives up mu until faults change, limit has passed (negative: never), ctx
// ends or the process is closed; for the last two it returns an error. Each call
// makes a channel of its own: a bubble counts only its own channels as durable,
// and a channel left over from one bubble must not be closed in another.
func (p *process) park(ctx context.Context, limit time.Duration) error {
	s := p.store
	changed := make(chan struct{})
	s.parked[changed] = struct{}{}
	var due <-chan time.Time
	if limit >= 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		due = timer.C
	}
	s.unlock()
	select {
	case <-changed:
	case <-due:
	case <-ctx.Done():
	}
	s.mu.Lock()
	delete(s.parked, changed)
	if p.closed {
		return errClosed
	}
	return ctx.Err()
}

// A fate is how far a call got.
type fate uint8

const (
	unknown  fate = iota // it may have been executed, now or later
	failed               // it was certainly not executed and never will be
	answered             // it was executed and the reply is here
)

// arrive carries a request to the store; mu is held, and given up meanwhile.
// Without an error the request has arrived and is executed under the same mu.
// Late is what becomes of a delayed request that nobody waits for any more; nil
// if nothing.
func (p *process) arrive(ctx context.Context, late func(now time.Time)) (fate, error) {
	s := p.store
	if p.closed {
		return failed, errClosed
	}
	if err := ctx.Err(); err != nil {
		return failed, err // nothing was handed over yet
	}
	sent := time.Now()
	for {
		f := s.faultsOf(p)
		left := f.Delay - time.Since(sent)
		switch {
		case f.Partitioned:
			left = -1
		case left <= 0:
			if f.Fail != nil {
				return failed, f.Fail
			}
			return answered, nil
		}
		err := p.park(ctx, left)
		if err == nil {
			continue
		}
		if f = s.faultsOf(p); late != nil && !p.closed && !f.Partitioned {
			p.after(max(0, f.Delay-time.Since(sent)), func(now time.Time) {
				if f := s.faultsOf(p); !f.Partitioned && f.Fail == nil {
					late(now)
				}
			})
		}
		return unknown, err
	}
}

// comeBack carries the reply of an executed request back, as arrive does for the
// request. With an error the outcome is unknown to the caller.
func (p *process) comeBack(ctx context.Context) error {
	s := p.store
	done := time.Now()
	for {
		f := s.faultsOf(p)
		left := f.ReplyDelay - time.Since(done)
		switch {
		case f.DropReplies:
			return errNoReply
		case f.Partitioned:
			left = -1
		case left <= 0:
			return nil
		}
		if err := p.park(ctx, left); err != nil {
			return err
		}
	}
}

// exchange sends a request, executes it and brings back its reply. Label is that
// of the caller's term, empty where there is none. Run is called under mu, at
// most once, maybe after exchange has returned: what it uses must not be the
// caller's any more, which is why it returns its results.
func exchange[T any](ctx context.Context, p *process, label string, run func(now time.Time) T) (T, fate, error) {
	var none T
	s := p.store
	s.mu.Lock()
	defer s.unlock()
	if p.sink == nil && !p.closed {
		return none, failed, errNotStarted
	}
	if label != "" {
		p.label = label
	}
	if got, err := p.arrive(ctx, func(now time.Time) { run(now) }); err != nil {
		return none, got, err
	}
	reply := run(time.Now())
	if err := p.comeBack(ctx); err != nil {
		return none, unknown, err
	}
	return reply, answered, nil
}
