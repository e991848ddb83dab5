//go:build unix

package supervise

import (
	"time"

	"golang.org/x/sys/unix"
)

// Variables of the command's environment by which its strays are recognised: the
// hold that it runs under, and those around that, a line for each that begins
// with the term and a tab.
const (
	TermVariable  = "PGMUTEX_TERM"
	OuterVariable = "PGMUTEX_OUTER"
)

// A stray belongs to the command and has left its process group.
type stray struct {
	pid   int
	start uint64 // tells it from a later process with its pid
	inner bool   // runs under a hold of its own as well, whose wrapper looks after it
}

// An origin is how strays are recognised.
type origin struct {
	term string // in their environment

	// parent is the wrapper, whose descendants they are whatever became of their
	// environment; the zero process if it has children of another origin.
	parent process
}

// A process is told from a later one with its pid by when it started.
type process struct {
	pid   int
	start uint64
}

// A sweeper looks for strays and signals them, in a goroutine of its own: what is
// known of a process may take long to read. It is used by one goroutine.
type sweeper struct {
	of    origin
	spare []int // processes that are no strays: this one is never one
	found chan int

	busy  bool
	begun time.Duration
	next  time.Duration
	clean int // looks in a row that found nobody
}

func newSweeper() *sweeper { return &sweeper{found: make(chan int, 1)} }

// leastPause is the time between two looks, unless a look takes long.
const leastPause = 50 * time.Millisecond

// sweep begins a look, unless one is going on or has just been, and tells whether
// it does. Whom it finds outside of the group is sent the signal; zero is none.
// The number comes by found, and has to be passed to done.
func (s *sweeper) sweep(at time.Duration, group int, sig unix.Signal) bool {
	if s.busy || at < s.next {
		return false
	}
	s.busy, s.begun = true, at
	of, spare := s.of, s.spare
	go func() {
		strays := of.strays(group, spare)
		for _, p := range strays {
			if sig != 0 && (sig == unix.SIGKILL || !p.inner) {
				p.signal(sig)
			}
		}
		s.found <- len(strays)
	}()
	return true
}

// done takes in the result of a look.
func (s *sweeper) done(found int) {
	s.busy = false
	at := now()
	s.next = at + max(leastPause, 4*(at-s.begun))
	if found > 0 {
		s.clean = 0
		return
	}
	s.clean++
}

// nobody tells whether nobody is left. A look is no snapshot: what forks and ends
// all the time may be missed by one.
func (s *sweeper) nobody() bool { return s.clean >= 2 }

// forget makes what is known of no use, since a signal was sent.
func (s *sweeper) forget() { s.clean, s.next = 0, 0 }

// finish kills all strays, and gives up after the grace time.
func (s *sweeper) finish(group int) {
	s.forget()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	for again := time.NewTicker(leastPause / 5); !s.nobody(); {
		s.sweep(now(), group, unix.SIGKILL)
		select {
		case n := <-s.found:
			s.done(n)
		case <-again.C:
		case <-timer.C:
			again.Stop()
			return
		}
	}
}
