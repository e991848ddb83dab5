//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package pgdb

import (
	"net"
	"syscall"
)

// peek looks at the socket's input without taking anything from it. A microsecond
// is a small price before each statement: a read with a deadline in the past
// would not look at the socket at all, one in the future would wait.
//
// Control and not Read, which queues behind every other reader of the
// connection: pgx leaves one behind after a write that was slow, and that one
// reads until the server has something to say.
func peek(c net.Conn) bool {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return true
	}
	found := false
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		// Zero bytes without an error is the end of the stream.
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		found = err != syscall.EAGAIN && err != syscall.EWOULDBLOCK && err != syscall.EINTR
	})
	return found || err != nil
}
