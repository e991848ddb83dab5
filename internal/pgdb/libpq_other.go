//go:build !linux

package pgdb

import (
	"errors"
	"net"
	"syscall"
)

// userTimeout does nothing, as in libpq: only Linux has such a setting.
func userTimeout(syscall.RawConn, int) error { return nil }

func checkPeer(net.Conn, string) error {
	return errors.New("requirepeer: the user that the server runs as is known only on Linux")
}
