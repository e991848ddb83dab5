package faults

import (
	"syscall"
	"time"
	"unsafe"
)

// now is the host's monotonic clock, the same for all of its processes.
func now() time.Duration {
	const monotonic = 1
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, monotonic, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		panic(errno)
	}
	return time.Duration(ts.Nano())
}
