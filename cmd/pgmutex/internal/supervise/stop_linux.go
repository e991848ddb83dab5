package supervise

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// defaultStop gives the signal of Ctrl-Z its default effect on this process,
// until restore is called.
//
// The Go runtime never does that once it has been asked for the signal:
// signal.Reset leaves it without any effect. So the kernel is asked.
func defaultStop() (sig syscall.Signal, restore func()) {
	// Larger than struct sigaction is anywhere; all zero is SIG_DFL.
	var none, old [64]byte
	sigaction(&none, &old)
	return unix.SIGTSTP, func() { sigaction(&old, nil) }
}

// sigsetSize is what the kernel insists on: 64 signals, 128 on MIPS, whose
// refusal leaves Ctrl-Z to the command alone.
const sigsetSize = 8

func sigaction(to, old *[64]byte) {
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGTSTP),
		uintptr(unsafe.Pointer(to)), uintptr(unsafe.Pointer(old)), sigsetSize, 0, 0)
}
