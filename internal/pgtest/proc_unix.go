//go:build unix

package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// identity is the user that servers run as. The zero value is ourselves.
type identity struct {
	switched bool
	uid, gid int
}

// unprivileged finds the user for servers: PostgreSQL and PgBouncer refuse to
// run as root, everybody else runs them as oneself.
func unprivileged() (identity, error) {
	if os.Geteuid() != 0 {
		return identity{}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.Atoi(u.Uid)
		gid, err2 := strconv.Atoi(u.Gid)
		if err1 == nil && err2 == nil && uid != 0 {
			return identity{switched: true, uid: uid, gid: gid}, nil
		}
	}
	return identity{}, fmt.Errorf("running as root, and neither user postgres nor nobody exists: PostgreSQL does not run as root")
}

// own gives path to the identity.
func (who identity) own(path string) error {
	if !who.switched {
		return nil
	}
	return os.Chown(path, who.uid, who.gid)
}

// reaches reports whether the identity may pass through every directory down to
// path. For another user only the "others" bits count: it is nobody's group
// mate.
func (who identity) reaches(path string) bool {
	if !who.switched {
		return true
	}
	for dir := filepath.Clean(path); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm()&1 == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}

// apply makes cmd run as the identity and in a session of its own, so that a
// Ctrl-C on the terminal reaches the test alone.
func (who identity) apply(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if who.switched {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(who.uid), Gid: uint32(who.gid)}
	}
}

// flock takes an exclusive lock on the file at path, waiting for it, and
// returns its release. The file stays: removing it would let two owners in.
func flock(path string) (release func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}

func signal(pid int, sig syscall.Signal) error { return syscall.Kill(pid, sig) }

const (
	sigStop = syscall.SIGSTOP
	sigCont = syscall.SIGCONT
)
