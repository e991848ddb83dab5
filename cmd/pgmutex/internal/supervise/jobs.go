//go:build unix

package supervise

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// signal passes a signal on that this process got.
func (s *supervisor) signal(sig syscall.Signal) {
	switch sig {
	case unix.SIGCONT:
		s.resume()
		return
	case unix.SIGTSTP:
		if s.lost {
			return // it was told to end
		}
		s.stopping = true
	}
	signalGroup(s.group, sig)
}

// stopped is called when the command has been stopped by a signal.
func (s *supervisor) stopped(by syscall.Signal) {
	switch {
	case s.lost:
		signalGroup(s.group, unix.SIGCONT) // it was told to end
		return
	case (by == unix.SIGTTIN || by == unix.SIGTTOU) && s.tty.lend(s.group):
		// It only wanted the terminal.
		signalGroup(s.group, unix.SIGCONT)
		return
	case s.tty == nil && !s.stopping:
		// No job control here: whoever stopped the command will continue it, and
		// would not know to continue us.
		return
	}
	s.stop(by)
}

// orphanNotice is how long this process waits to find out that it was not
// stopped by its own signal.
const orphanNotice = 200 * time.Millisecond

// stop stops this process too. It does so by a signal whose effect the kernel
// leaves out where nobody could ever continue us: in a group without a shell
// above it, as under "ssh -t host pgmutex run …".
func (s *supervisor) stop(by syscall.Signal) {
	sig, restore := defaultStop()
	defer restore()
	target := os.Getpid()
	if s.tty != nil && s.tty.lent && by == unix.SIGTSTP {
		// Ctrl-Z reached only the command's group. A terminal sends it to all of
		// a pipeline and to the script around it.
		target = 0
	}
	_ = unix.Kill(target, unix.SIGTSTP)
	if sig != unix.SIGTSTP {
		_ = unix.Kill(os.Getpid(), sig)
	}

	// Stopped here, or perhaps a moment later. SIGCONT tells that it is over; the
	// timer may well be what is seen first then, but has taken too long.
	for {
		armed := time.Now()
		timer := time.NewTimer(orphanNotice)
		select {
		case sig := <-s.opts.Signals.C():
			timer.Stop()
			s.signal(sig.(syscall.Signal))
			if sig == unix.SIGCONT {
				return
			}
		case <-timer.C:
			if time.Since(armed) > 2*orphanNotice {
				continue
			}
			if by == unix.SIGTSTP {
				signalGroup(s.group, unix.SIGCONT) // as if Ctrl-Z had done nothing
			}
			return
		}
	}
}

// resume continues the command after this process was continued, in the
// foreground if we are there now.
func (s *supervisor) resume() {
	s.stopping = false
	if s.tty != nil && (s.tty.lent || s.tty.wanted()) {
		s.tty.lent = false
		s.tty.lend(s.group)
	}
	signalGroup(s.group, unix.SIGCONT)
}
