//go:build unix && !linux

package supervise

import "golang.org/x/sys/unix"

const getTermios = unix.TIOCGETA
