package clock

import (
	"testing"
	"time"
)

// host is a machine whose clocks are set by hand.
type host struct {
	mono, wall, slept time.Duration
	silent            bool // does not tell how long it slept
	asked             int  // how often it was asked
}

func (h *host) clock() *clock {
	return newClock(
		func() (mono, wall time.Duration) { return h.mono, h.wall },
		func() (time.Duration, bool) { h.asked++; return h.slept, !h.silent },
	)
}

// pass lets time go by, awake.
func (h *host) pass(d time.Duration) { h.mono += d; h.wall += d }

// sleep suspends the host.
func (h *host) sleep(d time.Duration) { h.wall += d; h.slept += d }

func TestElapsedCountsSuspendedTime(t *testing.T) {
	h := &host{}
	c := h.clock()
	start := c.elapsed()
	h.pass(time.Second)
	h.sleep(time.Hour)
	h.pass(time.Second)
	if got, want := c.elapsed()-start, time.Hour+2*time.Second; got != want {
		t.Fatalf("elapsed %v over two seconds and an hour's sleep, want %v", got, want)
	}
}

func TestElapsedAsksTheKernelOnlyWhenClocksMovedApart(t *testing.T) {
	h := &host{}
	c := h.clock()
	asked := h.asked
	for range 100 {
		h.pass(time.Second)
		c.elapsed()
	}
	if h.asked != asked {
		t.Fatalf("asked %d times while no clock had moved", h.asked-asked)
	}
	h.sleep(time.Minute)
	c.elapsed()
	if h.asked == asked {
		t.Fatal("not asked after the clocks had moved apart")
	}
}

func TestElapsedIgnoresStepsOfTheWallClock(t *testing.T) {
	for _, step := range []time.Duration{24 * time.Hour, -24 * time.Hour} {
		h := &host{}
		c := h.clock()
		start := c.elapsed()
		h.wall += step
		h.pass(time.Second)
		if got := c.elapsed() - start; got != time.Second {
			t.Errorf("elapsed %v after a step of %v, want 1s", got, step)
		}
	}
}

func TestElapsedWithoutTheKernelsHelp(t *testing.T) {
	h := &host{silent: true}
	c := h.clock()
	start := c.elapsed()
	h.sleep(time.Hour)
	if got := c.elapsed() - start; got != time.Hour {
		t.Errorf("elapsed %v over an hour's sleep", got)
	}
	h.wall -= 2 * time.Hour // set back: not a reason to go back
	if got := c.elapsed() - start; got != time.Hour {
		t.Errorf("elapsed %v after the wall clock was set back, want 1h", got)
	}
}

func TestElapsedNeverFalls(t *testing.T) {
	h := &host{}
	c := h.clock()
	last := c.elapsed()
	steps := []func(){
		func() { h.pass(time.Second) }, func() { h.wall -= time.Hour }, func() { h.sleep(time.Minute) },
		func() { h.wall += time.Hour }, func() { h.slept -= time.Second }, func() { h.pass(time.Millisecond) },
	}
	for i, step := range steps {
		step()
		now := c.elapsed()
		if now < last {
			t.Fatalf("step %d: went back by %v", i, last-now)
		}
		last = now
	}
}

func TestElapsedOfThisHost(t *testing.T) {
	before := Elapsed()
	start := time.Now()
	for time.Since(start) < 2*time.Millisecond {
	}
	if got := Elapsed() - before; got < 2*time.Millisecond {
		t.Fatalf("elapsed %v over 2ms", got)
	}
}

func BenchmarkElapsed(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		Elapsed()
	}
}
