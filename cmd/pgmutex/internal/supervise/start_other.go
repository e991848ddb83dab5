//go:build unix && !linux

package supervise

import (
	"os"
	"syscall"
)

func ownExecutable() (string, error) { return os.Executable() }

// tie does nothing: only the watchdog ends the command when the wrapper dies.
func tie(*syscall.SysProcAttr) {}
