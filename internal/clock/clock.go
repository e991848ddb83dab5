// Package clock reads a clock that never goes back and counts the time for
// which the host was suspended, cheaply enough to be asked before every step
// of a job.
//
// Go's monotonic clock stands still while a laptop sleeps; a lease does not.
// Linux has CLOCK_BOOTTIME, but asking it is a real system call, twenty times
// the price of time.Now. So it is asked only when wall and monotonic time have
// moved apart since the last look, which a suspend makes them do. Elsewhere,
// wall time that ran ahead of monotonic time counts as a suspend: a wall clock
// set forward then ends trust early, which is the safe side.
package clock

import (
	"sync/atomic"
	"time"
)

// tolerance is how far wall and monotonic time may drift apart unnoticed: far
// above the time between the two reads of one time.Now, far below anything
// that a trust window could notice.
const tolerance = time.Millisecond

// Elapsed returns the time since an arbitrary fixed moment of this process.
// It may be called concurrently.
func Elapsed() time.Duration { return process.elapsed() }

var (
	origin  = time.Now()
	process = newClock(read, suspended)
)

// read returns both clocks of this process, from one time.Now.
func read() (mono, wall time.Duration) {
	now := time.Now()
	return now.Sub(origin), time.Duration(now.UnixNano() - origin.UnixNano())
}

// A clock adds what the host slept to the monotonic clock.
type clock struct {
	read func() (mono, wall time.Duration)
	// suspended returns how long the host has slept since boot, or false where
	// the system does not say.
	suspended func() (time.Duration, bool)
	last      atomic.Pointer[reading]
}

type reading struct {
	mono, wall time.Duration
	slept      time.Duration // never falls
}

func newClock(read func() (mono, wall time.Duration), suspended func() (time.Duration, bool)) *clock {
	c := &clock{read: read, suspended: suspended}
	c.last.Store(c.look(reading{}))
	return c
}

func (c *clock) elapsed() time.Duration {
	last := c.last.Load()
	mono, wall := c.read()
	if drift := (wall - last.wall) - (mono - last.mono); -tolerance < drift && drift < tolerance {
		return mono + last.slept
	}
	next := c.look(*last)
	// A look that lost the race may know of less sleep than the one that is
	// stored; what is stored must never fall.
	for !c.last.CompareAndSwap(last, next) {
		last = c.last.Load()
		if last.slept >= next.slept {
			break
		}
	}
	return next.mono + max(next.slept, last.slept)
}

// look takes a new reading, knowing the one before.
func (c *clock) look(last reading) *reading {
	for {
		mono, wall := c.read()
		slept, ok := c.suspended()
		if !ok {
			drift := (wall - last.wall) - (mono - last.mono)
			return &reading{mono: mono, wall: wall, slept: last.slept + max(drift, 0)}
		}
		// A process stopped between the reads would store clocks that do not
		// belong together, so the reads must be close to each other.
		mono2, wall2 := c.read()
		if mono2-mono < tolerance && wall2-wall < tolerance && wall-wall2 < tolerance {
			return &reading{mono: mono, wall: wall, slept: max(last.slept, slept)}
		}
	}
}
