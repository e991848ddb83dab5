package pgdb

import (
	"errors"
	"net"
	"os/user"
	"strconv"
	"syscall"
)

// userTimeout sets how long sent data may stay unacknowledged.
func userTimeout(raw syscall.RawConn, milliseconds int) error {
	const tcpUserTimeout = 18
	var failed error
	err := raw.Control(func(fd uintptr) {
		failed = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, milliseconds)
	})
	return errors.Join(err, failed)
}

// checkPeer makes sure that the server at a socket runs as a certain user.
func checkPeer(conn net.Conn, name string) error {
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	var credentials *syscall.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		credentials, failed = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	u, err := user.LookupId(strconv.FormatUint(uint64(credentials.Uid), 10))
	if err != nil || u.Username != name {
		return errors.New("requirepeer: the server runs as another user")
	}
	return nil
}
