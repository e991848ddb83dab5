package main_test

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// Daemons: in a session of their own, with a parent that has gone, one of them
// without the environment that they were given.
const (
	daemon    = `setsid -f sh -c 'echo $$ >daemon; exec sleep 300'; `
	bare      = `setsid -f env -i "$(command -v sh)" -c 'echo $$ >bare; exec sleep 300'; `
	both      = daemon + bare
	busyCheck = `for p in $(cat sh daemon bare); do kill -0 $p 2>/dev/null && ! grep -q '^State:.Z' /proc/$p/status 2>/dev/null && exit 9; done; exit 0`
)

// parentOf returns a process's parent.
func parentOf(t *testing.T, pid int) int {
	t.Helper()
	out, err := exec.Command("ps", "-o", "ppid=", "-p", strconv.Itoa(pid)).Output()
	pgtest.Must(t, err)
	parent, err := strconv.Atoi(strings.TrimSpace(string(out)))
	pgtest.Must(t, err)
	return parent
}

// daemonPid waits for a file with a process id, of a process that must not stay if
// the test fails.
func (w *world) daemonPid(name string) int {
	w.t.Helper()
	pid := w.pid(name)
	w.t.Cleanup(func() {
		if w.t.Failed() {
			end(pid)
		}
	})
	return pid
}

// end kills a process that a test has left behind.
func end(pid int) { _ = syscall.Kill(pid, syscall.SIGKILL) }

// What has left the group ends with it when the lock is lost, before somebody
// else may hold that.
func TestLossEndsDaemons(t *testing.T) {
	t.Parallel()
	for name, how := range map[string][]string{"asked": nil, "now": {"--now"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := w.start("run", "--stale", "6s", "n", "--", "sh", "-c", both+`echo $$ >sh; sleep 300; true`)
			sh, d, b := w.pid("sh"), w.daemonPid("daemon"), w.daemonPid("bare")
			w.run(append([]string{"release", "n", "--force"}, how...)...).want(0)
			if how == nil {
				pgtest.WaitFor(t, "the lock to be free", func() bool {
					free, there := len(w.holders("n")) == 0, alive(sh) || alive(d) || alive(b)
					if free && there {
						t.Fatal("the lock is free beside a daemon of the command")
					}
					return free
				})
			}
			p.want(76)
			gone(t, sh, d, b)
		})
	}
}

// A daemon is asked to end as the group is, and killed if it does not.
func TestDaemonIsAskedFirst(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ trap, grace, asked string }{
		"polite": {`trap "echo asked >>asked; exit" TERM`, "60s", "asked\n"},
		"deaf":   {`trap "" TERM`, "500ms", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := w.start("run", "--stale", "60s", "--heartbeat", "200ms", "--kill-after", c.grace, "n", "--", "sh", "-c",
				`setsid -f sh -c '`+c.trap+`; echo $$ >daemon; while :; do sleep 0.02; done'; echo $$ >sh; exec sleep 300`)
			sh, d := w.pid("sh"), w.daemonPid("daemon")
			w.run("release", "n", "--force").want(0)
			p.want(76)
			gone(t, sh, d)
			if got := w.read("asked"); got != c.asked {
				t.Errorf("the daemon noted %q", got)
			}
		})
	}
}

// The killed wrapper takes daemons with it that still have its environment.
func TestKilledWrapperEndsDaemons(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start("run", "--stale", "5s", "n", "--", "sh", "-c", daemon+`echo $$ >sh; sleep 300; true`)
	sh, d := w.pid("sh"), w.daemonPid("daemon")
	p.signal(syscall.SIGKILL)
	gone(t, sh, d)
	w.run("run", "-n", "n", "true").want(75).says("stale in")
}

// While the wrapper stands still, the watchdog ends daemons too, before the next
// holder begins.
func TestStoppedWrapperEndsDaemons(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start("run", "--stale", "3s", "n", "--", "sh", "-c", both+`echo $$ >sh; trap "" TERM; while :; do sleep 0.1; done`)
	sh, d, b := w.pid("sh"), w.daemonPid("daemon"), w.daemonPid("bare")
	p.signal(syscall.SIGSTOP)
	w.run("run", "-w", "30", "n", "--", "sh", "-c", busyCheck).want(0)
	gone(t, sh, d, b)
	p.signal(syscall.SIGCONT)
	p.want(76)
}

// What the command leaves behind when it ends by itself stays.
func TestDaemonsOutliveTheCommand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.run("run", "n", "--", "sh", "-c", both+`until [ -s daemon ] && [ -s bare ]; do sleep 0.02; done`).want(0)
	d, b := w.daemonPid("daemon"), w.daemonPid("bare")
	defer end(d)
	defer end(b)
	w.isFree("n")
	if !alive(d) || !alive(b) || parentOf(t, d) == p.cmd.Process.Pid {
		t.Error("the daemons ended with the command")
	}
	// A later loss of the same lock is no affair of theirs.
	q := w.start("run", "--stale", "6s", "n", "--", "sh", "-c", `echo up >up; exec sleep 300`)
	w.await("up")
	w.run("release", "n", "--force", "--now").want(0)
	q.want(76)
	if !alive(d) || !alive(b) {
		t.Error("the loss of another hold ended the daemons")
	}
}

// The loss of an outer lock ends the daemons of a run inside.
func TestLossEndsDaemonsOfInnerRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start("run", "--stale", "6s", "outer", "--", program, "run", "inner", "--", "sh", "-c", both+`echo $$ >sh; exec sleep 300`)
	sh, d, b := w.pid("sh"), w.daemonPid("daemon"), w.daemonPid("bare")
	w.run("release", "outer", "--force", "--now").want(0)
	p.want(76)
	gone(t, sh, d, b)
}

// What a script had started before it became the wrapper is not the command's.
func TestLossSparesEarlierChildren(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.startWith(func(c *exec.Cmd) {
		args := append([]string{"-c", `sleep 300 & echo $! >helper; exec "$@"`, "sh", program}, c.Args[1:]...)
		c.Path, c.Args = "/bin/sh", append([]string{"sh"}, args...)
	}, "run", "--stale", "6s", "n", "--", "sh", "-c", daemon+`echo $$ >sh; exec sleep 300`)
	helper, sh, d := w.pid("helper"), w.pid("sh"), w.daemonPid("daemon")
	defer end(helper)
	w.run("release", "n", "--force", "--now").want(0)
	p.want(76)
	gone(t, sh, d)
	if !alive(helper) {
		t.Error("the helper was ended")
	}
}
