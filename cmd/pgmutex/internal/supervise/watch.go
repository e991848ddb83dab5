package supervise

import (
	"errors"
	"fmt"
	"time"
)

// The wrapper writes lines to the watchdog: "origin PID START TERM", by which
// strays are recognised, "group PGID", and "plan TERM KILL" in nanoseconds of the
// shared clock. The last of each kind counts.

func originLine(o origin) string {
	return fmt.Sprintf("origin %d %d %q\n", o.parent.pid, o.parent.start, o.term)
}

func groupLine(group int) string { return fmt.Sprintf("group %d\n", group) }
func planLine(p plan) string     { return fmt.Sprintf("plan %d %d\n", p.term, p.kill) }

// action is what the watchdog does to the group.
type action int

const (
	nothing action = iota
	terminate
	kill
)

// A watch is what the watchdog knows and has done. It does no I/O.
type watch struct {
	origin origin
	group  int
	plan   plan
	termed bool
	killed bool
}

// longestNap bounds the time between two looks at the clock, since timers stand
// still while the host is suspended.
const longestNap = 500 * time.Millisecond

// hear takes in a line.
func (w *watch) hear(line string) error {
	var group int
	var p plan
	var o origin
	if n, _ := fmt.Sscanf(line, "origin %d %d %q", &o.parent.pid, &o.parent.start, &o.term); n == 3 {
		w.origin = o
		return nil
	}
	if n, _ := fmt.Sscanf(line, "group %d", &group); n == 1 {
		if group <= 1 {
			return errors.New("no process group")
		}
		w.group = group
		return nil
	}
	if n, _ := fmt.Sscanf(line, "plan %d %d", &p.term, &p.kill); n == 2 {
		w.plan = p
		return nil
	}
	return fmt.Errorf("line %q means nothing", line)
}

// due returns what is to be done at now, and when to ask again.
func (w *watch) due(now time.Duration) (do action, nap time.Duration) {
	next := now + longestNap
	switch {
	case w.group == 0:
	case w.plan.kill != 0 && now >= w.plan.kill && !w.killed:
		w.killed = true
		do = kill
	case w.plan.term != 0 && now >= w.plan.term && !w.termed && !w.killed:
		w.termed = true
		do = terminate
		next = min(next, w.plan.kill)
	default:
		for _, at := range []time.Duration{w.plan.term, w.plan.kill} {
			if at > now {
				next = min(next, at)
			}
		}
	}
	return do, max(next-now, time.Millisecond)
}
