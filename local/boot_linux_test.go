package local

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestOnlyTheKernelsBootCounts(t *testing.T) {
	// As systemd-nspawn and LXD mount it over the kernel's.
	path := filepath.Join(t.TempDir(), "boot_id")
	if err := os.WriteFile(path, []byte("0b6ac2a9-0000-4000-8000-000000000000\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := bootIDFrom(path); got != "" {
		t.Errorf("%q is taken for a boot", got)
	}
	if got := bootIDFrom(path + ".not"); got != "" {
		t.Errorf("a file that is not there is the boot %q", got)
	}
}

func TestElapsedCountsSleepAndNothingElse(t *testing.T) {
	var mono, wall, asleep time.Duration
	asked := 0
	c := &trustClock{
		read:  func() (time.Duration, time.Duration) { return mono, wall },
		slept: func() time.Duration { asked++; return asleep },
	}
	want := c.elapsed()
	check := func(what string) {
		t.Helper()
		for range 3 {
			if got := c.elapsed(); got != want {
				t.Fatalf("%s: %v, want %v", what, got, want)
			}
		}
	}
	pass := func(d time.Duration) { mono += d; wall += d; want += d }

	asked = 0
	for range 100 {
		pass(time.Second)
		check("awake")
	}
	if asked != 0 {
		t.Errorf("asked the kernel %d times while no clock had moved", asked)
	}
	wall, asleep, want = wall+time.Hour, asleep+time.Hour, want+time.Hour
	check("after a sleep")
	for _, step := range []time.Duration{24 * time.Hour, -48 * time.Hour} {
		wall += step
		check("after a step of the wall clock")
	}
	pass(time.Second)
	asleep -= time.Millisecond // as it is read: it never falls by itself
	wall += time.Second
	check("after an inexact look")
}

// The kernel's word is what the rows are judged by.
func TestElapsedIsTimeSinceBoot(t *testing.T) {
	difference := sinceBoot() - elapsed()
	for range 100 {
		before := sinceBoot()
		got := elapsed() + difference
		after := sinceBoot()
		if got < before-10*time.Millisecond || got > after+10*time.Millisecond {
			t.Fatalf("elapsed is off by %v", got-after)
		}
	}
}
