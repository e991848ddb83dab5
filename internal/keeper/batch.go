package keeper

import (
	"context"
	"sync"
)

// A batcher makes one call at a time and gathers what is asked for meanwhile
// into the next one: a lone request pays nothing for it, and the more there are
// at once, the less each of them costs the store.
//
// It has no goroutine of its own. Whoever finds no call under way makes one, for
// itself and for all who wait; whoever comes to wait is woken either with an
// answer, or to make the next call.
type batcher[In, Out any] struct {
	call func(batch []In) []Out // bounds itself: it serves many contexts
	name func(In) string        // no two of one call have the same
	most int

	mu    sync.Mutex
	busy  bool
	queue []*place[In, Out]
}

// A place is a request that waits for its answer.
type place[In, Out any] struct {
	in   In
	out  Out
	lead chan bool // true: make the next call; false: out is the answer
}

// do has in answered. It is false when ctx ended before in was handed to a
// call; from then on it waits for that call.
func (b *batcher[In, Out]) do(ctx context.Context, in In) (out Out, ok bool) {
	p := &place[In, Out]{in: in, lead: make(chan bool, 1)}
	b.mu.Lock()
	b.queue = append(b.queue, p)
	if !b.busy {
		b.busy = true
		p.lead <- true
	}
	b.mu.Unlock()

	select {
	case lead := <-p.lead:
		if lead {
			b.serve(p)
		}
		return p.out, true
	case <-ctx.Done():
	}
	if b.withdraw(p) {
		return out, false
	}
	if <-p.lead {
		// Ours to make although we do not want it any more: the others wait.
		b.serve(p)
	}
	return p.out, true
}

// withdraw takes p out of the queue; false when it has been handed to a call or
// is to make one.
func (b *batcher[In, Out]) withdraw(p *place[In, Out]) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, q := range b.queue {
		if q == p && len(p.lead) == 0 {
			b.queue = append(b.queue[:i], b.queue[i+1:]...)
			return true
		}
	}
	return false
}

// serve makes one call, for leader and for whoever else waits, and then hands
// the next one to the first of those who have come meanwhile.
func (b *batcher[In, Out]) serve(leader *place[In, Out]) {
	b.mu.Lock()
	batch := b.pick(leader)
	b.mu.Unlock()

	in := make([]In, len(batch))
	for i, p := range batch {
		in[i] = p.in
	}
	out := b.call(in)

	b.mu.Lock()
	b.busy = len(b.queue) > 0
	if b.busy {
		b.queue[0].lead <- true
	}
	b.mu.Unlock()
	for i, p := range batch {
		if i < len(out) {
			p.out = out[i]
		}
		if p != leader {
			p.lead <- false
		}
	}
}

// pick takes the leader and as many others as fit out of the queue.
func (b *batcher[In, Out]) pick(leader *place[In, Out]) []*place[In, Out] {
	batch := []*place[In, Out]{leader}
	if len(b.queue) == 1 {
		b.queue = b.queue[:0]
		return batch
	}
	names := map[string]bool{b.name(leader.in): true}
	rest := b.queue[:0]
	for _, p := range b.queue {
		switch name := b.name(p.in); {
		case p == leader:
		case len(batch) < b.most && !names[name]:
			names[name] = true
			batch = append(batch, p)
		default:
			rest = append(rest, p)
		}
	}
	clear(b.queue[len(rest):])
	b.queue = rest
	return batch
}
