package supervise

import (
	"testing"
	"time"
)

const (
	s  = time.Second
	ms = time.Millisecond
)

func TestKillAt(t *testing.T) {
	for _, c := range []struct {
		name                             string
		now, deadline, rest, after, want time.Duration
	}{
		{"grace is shorter", 400 * s, 400 * s, 200 * s, 10 * s, 410 * s},
		{"nine tenths of what is left", 4 * s, 4 * s, 2 * s, 10 * s, 5800 * ms},
		{"lost before the deadline", 1 * s, 4 * s, 2 * s, 10 * s, 5500 * ms},
		{"noticed late", 5 * s, 4 * s, 2 * s, 10 * s, 5900 * ms},
		{"noticed too late", 9 * s, 4 * s, 2 * s, 10 * s, 9 * s},
	} {
		got := Timing{Rest: c.rest, KillAfter: c.after}.killAt(c.now, c.deadline)
		if got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		if end := c.deadline + c.rest; got > max(end, c.now) {
			t.Errorf("%s: %v is after %v", c.name, got, end)
		}
	}
}

// The watchdog acts after the wrapper would have, and still in time.
func TestWatchedPlan(t *testing.T) {
	for _, rest := range []time.Duration{333 * ms, 1 * s, 2 * s, 200 * s, 56 * time.Hour} {
		for _, after := range []time.Duration{ms, 10 * s, time.Hour} {
			timing := Timing{Rest: rest, KillAfter: after}
			deadline := 100 * s
			p := timing.watched(deadline)
			switch {
			case p.term <= deadline, p.kill < p.term, p.kill >= deadline+rest:
				t.Errorf("rest %v, grace %v: plan %v for the deadline %v", rest, after, p, deadline)
			}
			if look := timing.look(); look <= 0 || look > rest/2 {
				t.Errorf("rest %v: looks every %v", rest, look)
			}
		}
	}
}

func TestWatch(t *testing.T) {
	var w watch
	if do, _ := w.due(9 * s); do != nothing {
		t.Fatal("acts without a group")
	}
	for _, line := range []string{"group 77\n", planLine(plan{term: 10 * s, kill: 12 * s})} {
		if err := w.hear(line); err != nil {
			t.Fatal(err)
		}
	}
	step := func(now time.Duration, want action, most time.Duration) {
		t.Helper()
		do, nap := w.due(now)
		if do != want {
			t.Errorf("at %v: %v, want %v", now, do, want)
		}
		if nap <= 0 || nap > most {
			t.Errorf("at %v: sleeps for %v", now, nap)
		}
	}
	step(1*s, nothing, longestNap)
	step(9900*ms, nothing, 100*ms)
	if err := w.hear(planLine(plan{term: 14 * s, kill: 16 * s})); err != nil { // a heartbeat
		t.Fatal(err)
	}
	step(10*s, nothing, longestNap)
	step(14*s, terminate, longestNap)
	step(14*s, nothing, longestNap)
	step(16*s, kill, longestNap)
	step(17*s, nothing, longestNap)

	w = watch{group: 77, plan: plan{term: 1 * s, kill: 2 * s}}
	step(5*s, kill, longestNap) // slept through both
	step(6*s, nothing, longestNap)
	w = watch{group: 77, plan: plan{kill: 2 * s}} // the wrapper has sent TERM itself
	step(1500*ms, nothing, 500*ms)
	step(2*s, kill, longestNap)

	for _, line := range []string{"", "group", "group 1", "group 0", "group -1", "plan 1", "nonsense"} {
		if err := w.hear(line); err == nil {
			t.Errorf("%q was understood", line)
		}
	}
	if w.group != 77 {
		t.Errorf("the group became %d", w.group)
	}
}
