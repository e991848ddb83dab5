package keeper

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/pgmutex/pgmutex/engine"
)

// startRenewal renews what is due, and with it whatever will be due within
// half of its interval: so all leases end up in one call for each interval,
// whenever they were taken. Called with mu held.
func (k *Keeper) startRenewal(now time.Duration) {
	var batch []*Lease
	shortest := never
	for _, l := range k.leases {
		if l.next <= now+l.heartbeat/2 {
			batch = append(batch, l)
			shortest = min(shortest, l.heartbeat)
		}
	}
	k.renewing = true
	// One hung call must not use up the whole trust, nor may a slow link be
	// given up on while an answer would still be in time. So a call is given two
	// intervals, or twice what the last answer took, the grant's included; each
	// time that runs out it doubles.
	patience := max(k.patience, 2*shortest)
	sent := now
	k.work.Add(1)
	go func() {
		defer k.work.Done()
		ctx, cancel := context.WithTimeout(k.stop, patience)
		defer cancel()
		answered, _ := k.renew(ctx, batch)

		k.mu.Lock()
		defer k.mu.Unlock()
		k.renewing = false
		switch {
		case answered:
			k.patience = 2 * (k.elapsed() - sent)
		case ctx.Err() != nil:
			k.patience = 2 * patience
		}
		k.schedule(k.elapsed())
	}()
}

// renew sends one call for the batch and applies what it says. When not one
// element was answered, it says why.
func (k *Keeper) renew(ctx context.Context, batch []*Lease) (answered bool, err error) {
	terms := make([]engine.Term, len(batch))
	for i, l := range batch {
		terms[i] = l.term
	}
	// Trust counts from before the request leaves our hands, so this comes
	// first and nothing may come between it and the call but what makes the
	// answer later.
	at, sent := time.Now(), k.elapsed()
	standings := k.engine.Renew(ctx, terms)
	arrived := k.elapsed()

	events := make([]Event, 0, len(batch))
	for i, l := range batch {
		var s engine.Standing
		if i < len(standings) {
			s = standings[i]
		}
		answered = answered || s.Health != engine.Unclear
		beat := l.event(Heartbeat)
		beat.At, beat.Took = at, arrived-sent
		switch s.Health {
		case engine.Gone:
			reason := s.Reason
			if reason == "" {
				reason = engine.LostRowGone
			}
			l.end(&Ending{reason: reason, by: s.By, Err: s.Err, gone: true})
			continue
		case engine.Held:
			if s.Stop {
				l.end(&Ending{reason: engine.LostReleased, by: s.StopBy})
				continue
			}
			l.silence.Store(nil)
			beat.Margin = l.Remaining()
			if !l.prolong(sent) {
				continue
			}
		default:
			err = s.Err
			reason := s.Reason
			l.silence.Store(&reason)
			beat.Err = s.Err
			beat.Margin = l.Remaining()
		}
		events = append(events, beat)
		if cleared, ok := k.reschedule(l, s.Health == engine.Held, sent); ok {
			events = append(events, cleared)
		}
	}
	for _, e := range events {
		k.cfg.Observe(e)
	}
	return answered, err
}

// reschedule sets when the lease is renewed next, and returns the end of its
// alert if that is what the answer means.
func (k *Keeper) reschedule(l *Lease, confirmed bool, sent time.Duration) (cleared Event, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !confirmed {
		// Soon, and not in step with everybody else who was cut off with us.
		l.next = k.elapsed() + jitter(l.heartbeat/4)
		return Event{}, false
	}
	age := sent - l.confirmed
	l.confirmed = max(l.confirmed, sent)
	l.next = l.confirmed + l.heartbeat
	// A confirmation may be old when it comes; the silence is over only if it
	// would not be reported anew at once.
	if l.late && k.elapsed()-l.confirmed < l.alertAfter {
		l.late = false
		cleared = l.event(AlertCleared)
		cleared.Age = age
		return cleared, true
	}
	return Event{}, false
}

// ownAlert reports that our own heartbeats do not get through.
func (k *Keeper) ownAlert(l *Lease, now time.Duration) Event {
	e := l.event(Alert)
	e.Age, e.Margin = now-l.confirmed, time.Duration(l.deadline.Load())-now
	return e
}

// Renew sends a heartbeat for this lease now. It returns nil when that was
// answered, whatever the answer was, the reason when it was not, and ctx's
// cause when ctx ends first; the heartbeat then goes on by itself.
func (l *Lease) Renew(ctx context.Context) error {
	done := make(chan error, 1)
	started := l.keeper.spawn(func() {
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(l.left(), 0))
		defer cancel()
		defer context.AfterFunc(l.keeper.stop, cancel)()
		answered, err := l.keeper.renew(call, []*Lease{l})
		switch {
		case answered:
			done <- nil
		case err != nil:
			done <- err
		default:
			done <- errUnanswered
		}
	})
	if !started {
		return errUnanswered
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var errUnanswered = errors.New("the store did not answer")

// jitter returns a duration between d/2 and d, never zero.
func jitter(d time.Duration) time.Duration {
	half := max(d/2, 1)
	return half + rand.N(half)
}
