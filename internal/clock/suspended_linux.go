package clock

import (
	"syscall"
	"time"
	"unsafe"
)

const (
	clockMonotonic = 1
	clockBoottime  = 7
)

// suspended is CLOCK_BOOTTIME less CLOCK_MONOTONIC. BOOTTIME is read first, so
// that a pause between the two makes the answer too small by the pause rather
// than too large: look retries after a pause that matters.
func suspended() (time.Duration, bool) {
	boot, ok := gettime(clockBoottime)
	if !ok {
		return 0, false
	}
	mono, ok := gettime(clockMonotonic)
	if !ok {
		return 0, false
	}
	// Two reads of one instant differ by their own cost; only a real suspend
	// counts.
	if slept := boot - mono; slept > tolerance {
		return slept, true
	}
	return 0, true
}

func gettime(id uintptr) (time.Duration, bool) {
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano()), errno == 0
}
