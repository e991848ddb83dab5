//go:build unix

package supervise

import (
	"os"
	"os/signal"
	"syscall"
)

// ending are the signals that end a wait, and that are passed on to a command.
var ending = []os.Signal{
	syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
}

// Signals takes the signals that this process is sent.
type Signals struct {
	c chan os.Signal
}

// Listen takes over the signals that end a wait. Those that were ignored when
// this process began, as nohup and shells do for background jobs, stay ignored
// by it and by the command.
func Listen() *Signals {
	s := &Signals{c: make(chan os.Signal, 64)}
	for _, sig := range ending {
		if !signal.Ignored(sig) {
			signal.Notify(s.c, sig)
		}
	}
	return s
}

// C delivers the signals.
func (s *Signals) C() <-chan os.Signal { return s.c }

// all takes over what matters only while a command runs: until then Ctrl-Z
// stops this process as it does any other.
func (s *Signals) all() {
	signal.Notify(s.c, syscall.SIGCONT)
	for _, sig := range []os.Signal{syscall.SIGWINCH, syscall.SIGTSTP} {
		if !signal.Ignored(sig) {
			signal.Notify(s.c, sig)
		}
	}
}

// Stop leaves the signals to their defaults.
func (s *Signals) Stop() { signal.Stop(s.c) }

// DieOf ends this process by a signal, so that whoever started it sees that.
// It returns if that does not work.
func DieOf(sig syscall.Signal) {
	signal.Reset(sig)
	_ = syscall.Kill(os.Getpid(), sig)
}
