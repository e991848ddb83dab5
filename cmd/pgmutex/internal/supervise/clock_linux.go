package supervise

import (
	"time"

	"golang.org/x/sys/unix"
)

// now reads a clock that is the same in every process of the host and counts
// the time for which it was suspended.
func now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // a kernel before 2.6.39
	}
	return time.Duration(ts.Nano())
}
