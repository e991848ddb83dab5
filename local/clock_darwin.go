package local

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootID returns the name that the kernel gives to each boot.
func bootID() string {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return id
}

// sinceBoot reads mach_continuous_time, which is what CLOCK_MONOTONIC_RAW is
// here: it goes on while the machine sleeps and nobody can set it.
// (CLOCK_UPTIME_RAW stands still, and CLOCK_MONOTONIC follows corrections of the
// wall clock.)
func sinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_RAW, &ts); err != nil {
		panic("local: the system does not tell the time since boot: " + err.Error())
	}
	return time.Duration(ts.Nano())
}

func elapsed() time.Duration { return sinceBoot() }
