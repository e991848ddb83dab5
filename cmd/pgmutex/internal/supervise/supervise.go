//go:build unix

package supervise

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Hold is what a command runs under.
type Hold interface {
	Context() context.Context
	Held() bool
	Deadline() time.Time
}

// A Command is a program with its exact arguments, argument zero included, and
// environment, in which TermVariable is set. It gets this process's standard
// streams themselves.
type Command struct {
	Path string
	Args []string
	Env  []string
}

// Options say how a command is run.
type Options struct {
	Signals *Signals
	Timing  Timing

	// Lost is called once, soon after the hold has been lost. It must not block.
	// It returns whether somebody else may hold the lock already, so that there
	// is no time for grace.
	Lost func() (hurry bool)

	// Unguarded, if it is not nil, is called at most once, when there can be no
	// watchdog: the command runs on, and nothing ends it should this process be
	// killed or stopped. It must not block.
	Unguarded func(error)

	// Hurry is closed when a hold that was lost with time for grace turns out to
	// leave none.
	Hurry <-chan struct{}
}

// A Result is how a command ended.
type Result struct {
	Code   int            // if Signal is zero
	Signal syscall.Signal // that ended it
	Lost   bool           // the hold ended before the command had

	// OnTerminal is set when keys of a terminal may have been what ended it.
	OnTerminal bool
}

// Run starts the command under the hold and returns when it has ended. When the
// hold is lost first, it also returns only when the command has ended, and then
// with it its whole group and whoever has left that.
//
// An error is from starting the command; it is the one of the system.
//
// It is called once in the life of a process, whose children it reaps, all of
// them.
func Run(hold Hold, c Command, opts Options) (Result, error) {
	// See the package comment: the command dies with this very thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	opts.Signals.all()
	s := &supervisor{hold: hold, opts: opts, tty: openTerminal(), events: make(chan event, 16), strays: newSweeper()}
	defer s.tty.close()
	if s.observe(); s.lost {
		return Result{Lost: true}, nil
	}
	s.strays.of = origin{term: c.term(), parent: adopt()}
	s.dog.begin, s.dog.warn = startWatchdog, opts.Unguarded
	s.dog.start()
	defer s.dog.stop()
	s.guarded()
	if err := s.start(c); err != nil {
		return Result{}, err
	}
	s.guarded()
	go reap(s.events)
	s.loop()
	s.tty.takeBack(s.group)
	return s.result(), nil
}

// supervisor is the state of Run.
type supervisor struct {
	hold  Hold
	opts  Options
	tty   *terminal
	dog   dog
	group int // the command's pid and process group

	strays  *sweeper
	dogless bool // the watchdog ended during a look at strays

	events   chan event
	ended    bool // the command itself
	status   unix.WaitStatus
	stopping bool // SIGTSTP was passed on and not followed by SIGCONT yet

	deadline time.Duration // of the hold when last looked at
	lost     bool
	killAt   time.Duration // once lost
	killed   time.Duration // when
	termed   bool          // the strays
}

// event is a change of state of a child.
type event struct {
	pid    int
	status unix.WaitStatus
}

// reap waits for all children, also for those that are ours only because this
// is the first process of a container.
func reap(events chan<- event) {
	for {
		var e event
		var err error
		e.pid, err = unix.Wait4(-1, &e.status, unix.WUNTRACED, nil)
		switch {
		case err == nil:
			events <- e
		case !errors.Is(err, unix.EINTR):
			return // no child is left
		}
	}
}

func (s *supervisor) start(c Command) error {
	attr := &syscall.SysProcAttr{Setpgid: true}
	tie(attr)
	foreground := s.tty.wanted()
	if foreground {
		attr.Foreground, attr.Ctty = true, s.tty.fd
	}
	files := []uintptr{0, 1, 2}
	pid, err := syscall.ForkExec(c.Path, c.Args, &syscall.ProcAttr{Env: c.Env, Files: files, Sys: attr})
	if err != nil {
		if foreground {
			s.tty.set(s.tty.own) // the child had taken it before it failed
		}
		return err
	}
	if foreground {
		s.tty.lent = true
	}
	s.group = pid
	return nil
}

// grace bounds the wait for processes that were killed and are not gone: as
// zombies of a parent that does not look after them they stay for ever.
const grace = 2 * time.Second

// hurried is how often the loop looks once the command has to end.
const hurried = 10 * time.Millisecond

func (s *supervisor) loop() {
	ticker := time.NewTicker(s.opts.Timing.look())
	defer ticker.Stop()
	over, hurry := s.hold.Context().Done(), s.opts.Hurry
	for !s.finished() {
		select {
		case e := <-s.events:
			s.child(e)
		case sig := <-s.opts.Signals.C():
			s.signal(sig.(syscall.Signal))
		case <-ticker.C:
		case <-over:
			over = nil
		case <-hurry:
			hurry = nil
			s.killAt = min(s.killAt, now())
		case n := <-s.strays.found:
			s.strays.done(n)
			s.replaceDog()
		}
		// The clocks are read after every wake-up: having been stopped, or the
		// host having slept, shows in nothing else.
		if s.observe(); s.lost {
			ticker.Reset(hurried)
			s.finish()
		}
	}
}

// finished tells whether nothing is left to wait for.
func (s *supervisor) finished() bool {
	if !s.ended {
		return false
	}
	s.observe()
	return !s.lost || s.gone() && s.strays.nobody() || s.killed != 0 && now() > s.killed+grace
}

func (s *supervisor) gone() bool { return errors.Is(unix.Kill(-s.group, 0), unix.ESRCH) }

// observe looks at the hold and begins the end if it has been lost.
func (s *supervisor) observe() {
	if s.lost {
		return
	}
	at := now()
	left := time.Until(s.hold.Deadline())
	if s.hold.Held() {
		if d := at + left; d > s.deadline {
			s.deadline = d
			s.dog.send(s.plan())
		}
		return
	}
	s.lost = true
	if s.deadline == 0 {
		s.deadline = at
	}
	s.killAt = s.opts.Timing.killAt(at, s.deadline)
	if s.opts.Lost() {
		s.killAt = at
	}
	if s.group == 0 {
		return // nothing has been started
	}
	s.dog.send(planLine(plan{kill: s.killAt + s.opts.Timing.Rest/20}))
	signalGroup(s.group, unix.SIGTERM)
	signalGroup(s.group, unix.SIGCONT)
}

func (s *supervisor) plan() string { return planLine(s.opts.Timing.watched(s.deadline)) }

// finish kills what has not ended in time. Strays are asked to end when the group
// is, once.
func (s *supervisor) finish() {
	at := now()
	if at < s.killAt {
		sig := unix.Signal(0)
		if !s.termed {
			sig = unix.SIGTERM
		}
		s.termed = s.strays.sweep(at, s.group, sig) || s.termed
		return
	}
	if s.killed == 0 {
		s.killed = at
		s.strays.forget()
	}
	signalGroup(s.group, unix.SIGKILL)
	s.strays.sweep(at, s.group, unix.SIGKILL)
}

func (s *supervisor) result() Result {
	r := Result{Lost: s.lost, OnTerminal: s.tty != nil}
	if s.status.Signaled() {
		r.Signal = s.status.Signal()
	} else {
		r.Code = s.status.ExitStatus()
	}
	return r
}

// child takes in what became of a child.
func (s *supervisor) child(e event) {
	switch {
	case e.pid == s.dog.pid && !e.status.Stopped():
		s.dog.lost()
		s.dogless = true
		s.replaceDog()
	case e.pid != s.group:
	case e.status.Stopped():
		s.stopped(e.status.StopSignal())
	default:
		s.ended, s.status = true, e.status
	}
}

// replaceDog replaces a watchdog that somebody ended: the command must not be
// without. A new child of ours must not meet a look at strays, which would take
// it for one.
func (s *supervisor) replaceDog() {
	if !s.dogless || s.strays.busy {
		return
	}
	s.dogless = false
	s.dog.start()
	s.guarded()
}

// guarded tells the watchdog what it guards, and the sweeper of the watchdog.
func (s *supervisor) guarded() {
	s.strays.spare = []int{s.dog.pid}
	s.dog.send(originLine(s.strays.of), s.plan())
	if s.group != 0 {
		s.dog.send(groupLine(s.group))
	}
}

// term is what the command's environment names the hold.
func (c Command) term() string {
	for _, entry := range c.Env {
		if term, ok := strings.CutPrefix(entry, TermVariable+"="); ok {
			return term
		}
	}
	return ""
}
