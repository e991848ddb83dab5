//go:build unix && !linux

package supervise

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// defaultStop returns a signal that stops this process under the rules of
// Ctrl-Z. The Go runtime has not been asked for this one.
func defaultStop() (sig syscall.Signal, restore func()) { return unix.SIGTTIN, func() {} }
