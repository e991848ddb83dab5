package keeper

import (
	"context"
	"slices"
)

// Refuse ends all waits and refuses new ones. Leases go on being renewed.
func (k *Keeper) Refuse() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	k.refuse()
}

func (k *Keeper) refusing() bool { return k.refused.Err() != nil }

// underway counts the attempts that are being made.
func (k *Keeper) underway(n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.attempts += n
	k.checkIdle()
}

// checkIdle tells drain when there is nothing left to wait for. A ghost is
// nothing to wait for: it may take as long as StaleAfter to be sure of it.
// Called with mu held.
func (k *Keeper) checkIdle() {
	if k.idle == nil || len(k.leases) > 0 || k.attempts > 0 {
		return
	}
	for _, u := range k.unsettled {
		if !u.ghost || u.tries == 0 {
			return
		}
	}
	close(k.idle)
	k.idle = nil
}

// drain waits until no lease is held and nothing is being given back, or until
// ctx ends.
func (k *Keeper) drain(ctx context.Context) {
	k.mu.Lock()
	idle := make(chan struct{})
	k.idle = idle
	k.checkIdle()
	k.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// hurry makes what is being tried again due now: its next try may be further off
// than Close is ready to wait.
func (k *Keeper) hurry() {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.elapsed()
	for _, u := range k.unsettled {
		if u.tries > 0 {
			u.next = now
			k.schedule(now)
		}
	}
}

// Close refuses new work, keeps the leases until their owners have given them
// back or ctx ends, gives back in any case what nobody works under, and joins
// every goroutine. It returns the names of leases that were left to lapse. It
// may be called once.
func (k *Keeper) Close(ctx context.Context) (left []string) {
	k.Refuse()
	k.drain(ctx)

	k.mu.Lock()
	var holding []*Lease
	for _, l := range k.leases {
		holding = append(holding, l)
	}
	k.mu.Unlock()
	for _, l := range holding {
		if l.end(&Ending{Closed: true}).Closed {
			left = append(left, l.term.Name)
		}
	}
	slices.Sort(left)

	k.hurry()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.cfg.ReleaseTimeout)
	k.drain(last)
	cancel()

	k.mu.Lock()
	k.halt()
	k.mu.Unlock()
	k.work.Wait()
	return left
}
