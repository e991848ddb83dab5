package keeper

import (
	"slices"
	"sync"
	"time"
)

// A batcher makes one call at a time and gathers what is asked for meanwhile
// into the next one: a lone request pays nothing for it, and the more there are
// at once, the less each of them costs the store.
//
// What comes of a request goes to deliver, whoever waits for it or not. A
// goroutine makes the calls while there is something to ask for; that of a lone
// request is made where it is, by [batcher.now], or by somebody else's means
// between [batcher.begin] and [batcher.end].
type batcher[In comparable, Out any] struct {
	call    func(batch []In) []Out // bounds itself: it serves many contexts
	deliver func(in In, out Out)
	name    func(In) string // no two of one call have the same
	// shares, where it is set, reports whether the answer to one request is right
	// for another one of its name, which had come before the call was made.
	shares func(out Out, asked, other In) bool
	// lone, where it is set, is the call for a request that nobody came with. It
	// delivers the answer by itself, and may return before that; false if it did
	// nothing.
	lone  func(in In) bool
	most  int
	turn  *turn
	spawn func(func()) bool

	mu    sync.Mutex
	busy  bool // somebody makes calls
	queue []In
}

// put asks for in, off the caller's path. It is false where nobody is left to
// ask, and nothing will come of it.
func (b *batcher[In, Out]) put(in In) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue = append(b.queue, in)
	if b.busy {
		return true
	}
	if !b.spawn(b.serve) {
		b.queue = b.queue[:len(b.queue)-1]
		return false
	}
	b.busy = true
	return true
}

// now is put, but makes the call itself where in is all that there is to ask
// for: two switches of goroutines are a tenth of a release.
func (b *batcher[In, Out]) now(in In) bool {
	if !b.begin() {
		return b.put(in)
	}
	out := b.call([]In{in})
	b.end()
	b.answer(in, out, 0)
	return true
}

// begin takes the place of the goroutine that makes the calls, for one call, if
// nobody has it. What is asked for meanwhile waits for end.
func (b *batcher[In, Out]) begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.busy || !b.turn.free() {
		return false
	}
	b.busy = true
	return true
}

func (b *batcher[In, Out]) end() {
	b.turn.give()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.busy = len(b.queue) > 0 && b.spawn(b.serve)
}

// withdraw takes in out of the queue; false when it has been handed to a call.
func (b *batcher[In, Out]) withdraw(in In) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.queue, in)
	if i >= 0 {
		b.queue = slices.Delete(b.queue, i, i+1)
	}
	return i >= 0
}

// serve makes calls until nothing is asked for any more.
func (b *batcher[In, Out]) serve() {
	for {
		b.mu.Lock()
		b.busy = len(b.queue) > 0
		if !b.busy {
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
		// Whoever comes while the other kind of call is made is still in time.
		ours := b.turn.take()
		b.mu.Lock()
		batch, twins := b.pick()
		b.mu.Unlock()
		var out []Out
		switch {
		case len(batch) == 1 && twins == nil && b.lone != nil && b.lone(batch[0]):
			batch = nil
		case len(batch) > 0: // it may have been withdrawn
			out = b.call(batch)
		}
		if ours {
			b.turn.give()
		}
		for i, in := range batch {
			b.answer(in, out, i)
			for _, other := range twins[b.name(in)] {
				if i < len(out) && b.shares(out[i], in, other) && b.withdraw(other) {
					b.deliver(other, out[i])
				}
			}
		}
	}
}

func (b *batcher[In, Out]) answer(in In, outs []Out, i int) {
	var out Out
	if i < len(outs) {
		out = outs[i]
	}
	b.deliver(in, out)
}

// pick takes as many as fit out of the queue, in their order, and returns those
// of the same names that it leaves there.
func (b *batcher[In, Out]) pick() (batch []In, twins map[string][]In) {
	if len(b.queue) < 2 {
		batch = b.queue
		b.queue = nil
		return batch, nil
	}
	names := make(map[string]bool, len(b.queue))
	rest := b.queue[:0]
	for _, in := range b.queue {
		name := b.name(in)
		if len(batch) < b.most && !names[name] {
			names[name] = true
			batch = append(batch, in)
			continue
		}
		rest = append(rest, in)
		if names[name] && b.shares != nil {
			if twins == nil {
				twins = map[string][]In{}
			}
			twins[name] = append(twins[name], in)
		}
	}
	clear(b.queue[len(rest):])
	b.queue = rest
	return batch, twins
}

// A turn is what two batchers share whose calls the store takes one after the
// other anyway: the second of two calls that are made at once would have gathered
// nobody while it waited in the engine.
type turn struct{ taken chan struct{} }

func newTurn() *turn { return &turn{make(chan struct{}, 1)} }

// gatherMost bounds the wait for the other's call. One that is slow is no reason
// to hold up this one, which may have nothing to do with it.
const gatherMost = 50 * time.Millisecond

// free takes the turn if nobody has it.
func (t *turn) free() bool {
	select {
	case t.taken <- struct{}{}:
		return true
	default:
		return false
	}
}

// take waits for the turn and reports whether it got it in time.
func (t *turn) take() bool {
	if t.free() {
		return true
	}
	timer := time.NewTimer(gatherMost)
	defer timer.Stop()
	select {
	case t.taken <- struct{}{}:
		return true
	case <-timer.C:
		return false
	}
}

func (t *turn) give() { <-t.taken }
