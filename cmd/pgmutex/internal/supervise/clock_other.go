//go:build unix && !linux

package supervise

import (
	"time"

	"golang.org/x/sys/unix"
)

// now reads a clock that is the same in every process of the host; on Darwin it
// counts the time for which it was suspended.
func now() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // cannot fail for a clock that exists
	return time.Duration(ts.Nano())
}
