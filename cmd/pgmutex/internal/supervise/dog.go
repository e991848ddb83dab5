//go:build unix

package supervise

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A dog is the wrapper's side of its watchdog. Without one, because it could not
// be started, its methods do nothing: then only a wrapper that is killed or
// stopped leaves its command unguarded.
type dog struct {
	pid    int
	pipe   *os.File
	starts int

	begin func() (pid int, pipe *os.File, err error) // startWatchdog, but for tests
	warn  func(error)                                // called once without one; may be nil
}

// mostStarts bounds how often a watchdog is replaced.
const mostStarts = 10

func (d *dog) start() {
	if d.starts++; d.starts > mostStarts {
		return
	}
	pid, pipe, err := d.begin()
	if err != nil {
		if d.warn != nil {
			d.warn(err)
			d.warn = nil
		}
		return
	}
	d.pid, d.pipe = pid, pipe
}

// lost takes in that the watchdog has ended.
func (d *dog) lost() {
	d.pipe.Close()
	d.pid, d.pipe = 0, nil
}

// send never waits: a watchdog that does not read has the older plan, which
// ends the command earlier.
func (d *dog) send(lines ...string) {
	if d.pipe == nil {
		return
	}
	_ = d.pipe.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
	for _, line := range lines {
		_, _ = io.WriteString(d.pipe, line)
	}
}

// stop ends the watchdog before it learns that this process ends.
func (d *dog) stop() {
	if d.pipe == nil {
		return
	}
	_ = unix.Kill(d.pid, unix.SIGKILL)
	for {
		// Whoever comes first, this or reap: afterwards it is gone.
		if _, err := unix.Wait4(d.pid, nil, 0, nil); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	d.pipe.Close()
}
