package faultconn

import (
	"sync"
	"time"
)

// state is what a proxy and its connections share: one lock for all faults, and
// a channel that wakes the writers waiting for a change.
type state struct {
	mu      sync.Mutex
	changed chan struct{}
}

// faults are the settings of a proxy, or of one connection.
type faults struct {
	state  *state
	frozen [2]bool
	delay  [2]time.Duration
	chunk  [2]int
}

func (f *faults) init(s *state) {
	f.state = s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
}

// change alters the settings of one or both directions and wakes the writers.
func (f *faults) change(d Direction, alter func(i int)) {
	f.state.mu.Lock()
	defer f.state.mu.Unlock()
	f.changeLocked(d, alter)
}

func (f *faults) changeLocked(d Direction, alter func(i int)) {
	for _, one := range []Direction{Requests, Replies} {
		if d&one != 0 {
			alter(one.index())
		}
	}
	close(f.state.changed)
	f.state.changed = make(chan struct{})
}

// Freeze keeps everything in a direction from being forwarded, ends of
// connections included, until Thaw. A message whose forwarding has begun still
// passes.
func (f *faults) Freeze(d Direction) { f.change(d, func(i int) { f.frozen[i] = true }) }

// Thaw ends Freeze: what was kept is forwarded, in order.
func (f *faults) Thaw(d Direction) { f.change(d, func(i int) { f.frozen[i] = false }) }

// HoldReplies is Freeze(Replies).
func (f *faults) HoldReplies() { f.Freeze(Replies) }

// ReleaseReplies is Thaw(Replies).
func (f *faults) ReleaseReplies() { f.Thaw(Replies) }

// Delay forwards messages d after they came; it adds latency and leaves the
// throughput alone. Zero ends it, for what is waiting too.
func (f *faults) Delay(dir Direction, d time.Duration) {
	f.change(dir, func(i int) { f.delay[i] = d })
}

// Chunk makes every write n bytes long at most, so that messages arrive in
// pieces. Zero ends it.
func (f *faults) Chunk(d Direction, n int) { f.change(d, func(i int) { f.chunk[i] = n }) }
