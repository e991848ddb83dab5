package supervise

import "time"

// Times are readings of the clock of clock.go, which the wrapper and the
// watchdog share.

// A Timing is what ending a command depends on, beside the hold itself.
type Timing struct {
	// Rest is the time between the hold's own deadline and the moment at which
	// somebody else may take the lock.
	Rest time.Duration

	// KillAfter is how long a command may take to end after TERM.
	KillAfter time.Duration
}

// killAt returns when a command that is asked to stop at now has to be killed:
// after its grace time, or once 9/10 of the time has passed that is left until
// somebody else may hold the lock.
func (t Timing) killAt(now, deadline time.Duration) time.Duration {
	left := max(deadline+t.Rest-now, 0)
	return now + min(t.KillAfter, left/10*9)
}

// A plan is when the watchdog acts if nothing is heard of the wrapper.
type plan struct {
	term, kill time.Duration // zero: not
}

// watched is the watchdog's plan while the command runs under a hold with this
// deadline. It comes a little after the wrapper's own, which does the same at
// the deadline itself as long as it is able to.
func (t Timing) watched(deadline time.Duration) plan {
	late := min(t.Rest/20, 100*time.Millisecond)
	term := deadline + late
	return plan{term: term, kill: t.killAt(term, deadline)}
}

// look is how often the wrapper looks at the hold: often enough to tell the
// watchdog of each heartbeat.
func (t Timing) look() time.Duration {
	return min(max(t.Rest/50, 10*time.Millisecond), 500*time.Millisecond)
}
