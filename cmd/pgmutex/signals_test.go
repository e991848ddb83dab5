package main_test

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// worker is a shell that starts a child and would leave it behind if only it
// were signalled itself.
const worker = `echo $$ >sh; sleep 300 & echo $! >child; wait`

// Each signal reaches the command and what it started; the wrapper waits, gives
// the lock back and ends as the command did.
func TestSignalsArePassedOn(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{
		"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP, "QUIT": syscall.SIGQUIT,
		"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2,
	} {
		t.Run(name, func(t *testing.T) {
			t.Run("default", func(t *testing.T) {
				w := newWorld(t)
				// A shell ignores INT and QUIT for what it starts with "&".
				p := w.start("run", "n", "--", "sh", "-c", `echo $$ >sh; sleep 300 | sleep 300`)
				sh := w.pid("sh")
				p.signal(sig)
				p.want(128 + int(sig)).noWords()
				w.isFree("n")
				gone(t, sh)
				if syscall.Kill(-sh, 0) == nil {
					pgtest.WaitFor(t, "the group to end", func() bool { return syscall.Kill(-sh, 0) != nil })
				}
			})
			t.Run("handled once", func(t *testing.T) {
				w := newWorld(t)
				p := w.start("run", "n", "--", "sh", "-c",
					`trap 'echo got >>got' `+name+`; echo ready >ready; while [ ! -e end ]; do sleep 0.02; done; exit 5`)
				w.await("ready")
				p.signal(sig)
				w.await("got")
				w.awaitHolder("n")
				pgtest.Must(t, os.WriteFile(w.file("end"), nil, 0o600))
				p.want(5).noWords()
				if got := w.read("got"); got != "got\n" {
					t.Errorf("the signal came %d times", strings.Count(got, "\n"))
				}
				w.isFree("n")
			})
		})
	}
}

// A signal ends a wait at once, with nothing run and nothing left behind.
func TestSignalEndsWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, end := w.hold("n")
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT} {
		p := w.start("run", "--wait", "10m", "n", "touch", "ran")
		pgtest.WaitFor(t, "the run to wait", func() bool { return strings.Contains(p.stderr(), "waiting for") })
		at := time.Now()
		p.signal(sig)
		p.want(128 + int(sig))
		if took := time.Since(at); took > 5*time.Second {
			t.Errorf("%v: ended after %v", sig, took)
		}
	}
	waiters := "SELECT count(*) FROM public.mutex_lock_waiter"
	pgtest.WaitFor(t, "the waiting line to be empty", func() bool { return pgtest.One[int64](t, w.dsn, waiters) == 0 })
	end()
	w.isFree("n")
	if _, err := os.Stat(w.file("ran")); err == nil {
		t.Error("the command ran")
	}
}

// The holder releases in the same moment in which the waiter is signalled:
// whichever is first, nothing is left behind.
func TestSignalAgainstGrant(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rounds := 60
	if testing.Short() {
		rounds = 10
	}
	ran := 0
	for i := range rounds {
		mark := "mark" + strconv.Itoa(i)
		_, end := w.hold("n")
		p := w.start("run", "--wait", "10m", "n", "--", "sh", "-c", `echo ran >"$0"; sleep 300`, mark)
		pgtest.WaitFor(t, "the run to wait", func() bool { return strings.Contains(p.stderr(), "waiting for") })
		go end()
		timer := time.NewTimer(time.Duration(i) * time.Millisecond)
		<-timer.C
		p.signal(syscall.SIGTERM)
		p.want(143)
		if w.read(mark) != "" {
			ran++
		}
		w.free("n")
		pgtest.Must(t, os.Remove(w.file("stop-n")))
	}
	t.Logf("the command had begun in %d of %d rounds", ran, rounds)
}

// What is ignored when the wrapper starts, as under nohup, stays so.
func TestIgnoredSignalsStayIgnored(t *testing.T) {
	w := newWorld(t)
	p := w.startWith(func(c *exec.Cmd) {
		*c = *exec.Command("sh", append([]string{"-c", `trap "" HUP; exec "$@"`, "sh", program}, c.Args[1:]...)...)
		c.Dir = w.dir
		c.Env = append(os.Environ(), "PGMUTEX_URL="+w.dsn)
		c.Stdout, c.Stderr = nil, nil
	}, "run", "n", "--", "sh", "-c", `kill -HUP $$; kill -HUP $PPID; echo alive >alive`)
	p.want(0)
	w.await("alive")
}

// kill -TSTP stops command and wrapper, and kill -CONT continues both.
func TestStopAndContinue(t *testing.T) {
	w := newWorld(t)
	// For bash, see noting.
	p := w.startWith(ownGroup, "run", "n", "--", "bash", "-c",
		`echo $$ >sh; while [ ! -e end ]; do sleep 0.02; done`)
	sh := w.pid("sh")
	p.signal(syscall.SIGTSTP)
	pgtest.WaitFor(t, "the command to stop", func() bool { return stopped(t, sh) })
	p.signal(syscall.SIGCONT)
	pgtest.WaitFor(t, "the command to continue", func() bool { return !stopped(t, sh) })
	pgtest.Must(t, os.WriteFile(w.file("end"), nil, 0o600))
	p.want(0)
}

// ownGroup starts a process in a group of its own. The kernel drops SIGTSTP in a
// group without a living parent in its session, and the group that the tests run
// in may be such a one.
func ownGroup(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// stopped tells whether a process is stopped.
func stopped(t *testing.T, pid int) bool {
	t.Helper()
	out, _ := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return strings.HasPrefix(strings.TrimSpace(string(out)), "T")
}

// The rest of the table in docs/cli.md: signals that end no wait, and those that
// come when the lock has been lost.
func TestSignalsByPhase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start("run", "--stale", "60s", "--heartbeat", "200ms", "n", "--", "sh", "-c",
		`trap "echo got >>got" USR1; trap "" TERM; echo up >up; while [ ! -e end ]; do sleep 0.02; done`)
	w.await("up")

	waiter := w.startWith(ownGroup, "run", "n", "touch", "ran")
	pgtest.WaitFor(t, "the run to wait", func() bool { return strings.Contains(waiter.stderr(), "waiting for") })
	waiter.signal(syscall.SIGWINCH)
	waiter.signal(syscall.SIGTSTP)
	pgtest.WaitFor(t, "the waiter to stop", func() bool { return stopped(t, waiter.cmd.Process.Pid) })
	waiter.signal(syscall.SIGCONT)
	pgtest.WaitFor(t, "the waiter to continue", func() bool { return !stopped(t, waiter.cmd.Process.Pid) })
	waiter.signal(syscall.SIGUSR1)
	waiter.want(128 + int(syscall.SIGUSR1))
	if _, err := os.Stat(w.file("ran")); err == nil {
		t.Error("the command of the waiter ran")
	}

	w.run("release", "n", "--force").want(0)
	pgtest.WaitFor(t, "the loss to be told", func() bool { return strings.Contains(p.stderr(), "released by operator") })
	p.signal(syscall.SIGUSR1)
	w.await("got")
	pgtest.Must(t, os.WriteFile(w.file("end"), nil, 0o600))
	p.want(76)
	w.isFree("n")
}
