//go:build unix

package supervise

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// A terminal is the controlling terminal of this process; nil is none.
type terminal struct {
	fd   int
	own  int  // our process group
	lent bool // the command's group has been put in the foreground
}

// openTerminal returns nil without a controlling terminal.
func openTerminal() *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	return &terminal{fd: fd, own: unix.Getpgrp()}
}

func (t *terminal) close() {
	if t != nil {
		_ = unix.Close(t.fd)
	}
}

// ours tells whether our own group is in the foreground.
func (t *terminal) ours() bool {
	if t == nil {
		return false
	}
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err == nil && group == t.own
}

// wanted tells whether the command is to have the terminal from the start.
func (t *terminal) wanted() bool {
	if !t.ours() || t.own != os.Getpid() || !IsTerminal(0) {
		return false
	}
	var out unix.Stat_t
	if err := unix.Fstat(1, &out); err != nil {
		return false
	}
	kind := out.Mode & unix.S_IFMT
	return kind != unix.S_IFIFO && kind != unix.S_IFSOCK
}

// lend puts the command's group in the foreground, if we are there to give it.
func (t *terminal) lend(group int) bool {
	if !t.ours() || !t.set(group) {
		return false
	}
	t.lent = true
	return true
}

// takeBack puts our own group in the foreground again, if the command's still
// is.
func (t *terminal) takeBack(group int) {
	if t == nil || !t.lent {
		return
	}
	t.lent = false
	if now, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP); err == nil && now == group {
		t.set(t.own)
	}
}

// set changes the foreground group. Whoever does that from the background is
// stopped by SIGTTOU unless it ignores it. No command is started meanwhile,
// which would inherit that.
func (t *terminal) set(group int) bool {
	signal.Ignore(syscall.SIGTTOU)
	defer signal.Reset(syscall.SIGTTOU)
	return unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group) == nil
}

// IsTerminal tells whether a descriptor is a terminal.
func IsTerminal(fd int) bool {
	_, err := unix.IoctlGetTermios(fd, getTermios)
	return err == nil
}

// Width returns the number of columns of a terminal, 80 where it does not say.
func Width(fd int) int {
	columns, _ := Size(fd)
	return columns
}

// Size returns the size of a terminal, 80 by 24 where it does not say.
func Size(fd int) (columns, lines int) {
	size, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 || size.Row == 0 {
		return 80, 24
	}
	return int(size.Col), int(size.Row)
}
