package local

import (
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

func bootID() string { return bootIDFrom("/proc/sys/kernel/random/boot_id") }

// bootIDFrom returns the kernel's random name of this boot, which is the same
// for all containers on it. Some container managers (systemd-nspawn, LXD) mount
// a file of their own there: that names the container, and a live holder outside
// of it would seem to be of another boot. So only the kernel's own counts.
func bootIDFrom(path string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil || st.Type != unix.PROC_SUPER_MAGIC {
		return ""
	}
	id, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

func sinceBoot() time.Duration { return gettime(unix.CLOCK_BOOTTIME) }

func gettime(id int32) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		// Every Linux that Go runs on has both clocks.
		panic("local: the system does not tell the time since boot: " + err.Error())
	}
	return time.Duration(ts.Nano())
}

// drift is how far wall and monotonic time may move apart unnoticed.
const drift = time.Millisecond

var (
	origin       = time.Now()
	elapsedClock = &trustClock{
		read: func() (mono, wall time.Duration) {
			now := time.Now()
			return now.Sub(origin), time.Duration(now.UnixNano())
		},
		slept: slept,
	}
)

// elapsed is what the client measures trust with: CLOCK_BOOTTIME from a fixed
// moment on.
func elapsed() time.Duration { return elapsedClock.elapsed() }

// A trustClock adds the time asleep to Go's monotonic clock. Asking the kernel
// costs eight times what time.Now does, so it is asked only when wall and
// monotonic time have moved apart since the last look, as they do in a sleep.
type trustClock struct {
	read   func() (mono, wall time.Duration)
	slept  func() time.Duration
	latest atomic.Pointer[reading]
}

// A reading is all clocks at one moment.
type reading struct {
	mono, wall time.Duration
	slept      time.Duration // never falls
}

func (c *trustClock) elapsed() time.Duration {
	mono, wall := c.read()
	last := c.latest.Load()
	if last != nil {
		if moved := (wall - last.wall) - (mono - last.mono); -drift < moved && moved < drift {
			return mono + last.slept
		}
	}
	next := &reading{mono: mono, wall: wall, slept: c.slept()}
	for {
		if last != nil {
			next.slept = max(next.slept, last.slept)
		}
		if c.latest.CompareAndSwap(last, next) {
			return mono + next.slept
		}
		last = c.latest.Load()
	}
}

// slept returns how long the machine has slept since it was booted. Readings
// that a pause has moved apart do not belong together and are taken again.
func slept() time.Duration {
	for {
		before := gettime(unix.CLOCK_MONOTONIC)
		boot := gettime(unix.CLOCK_BOOTTIME)
		after := gettime(unix.CLOCK_MONOTONIC)
		if after-before < drift {
			if d := boot - before; d > 2*drift { // else they differ by the reading alone
				return d
			}
			return 0
		}
	}
}
