package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex/internal/faultconn"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// stubborn ignores TERM, and so does what it starts.
const stubborn = `trap "" TERM; echo $$ >sh; sleep 300 & echo $! >child; while :; do wait; sleep 0.1; done`

// When an operator ends the hold, the whole group ends, whether it heeds TERM or
// not; the lock stays taken until it has.
func TestLossEndsTheWholeGroup(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ command, flag string }{
		"heeds TERM":         {worker, "--yes"},
		"ignores TERM":       {stubborn, "--yes"},
		"heeds TERM, now":    {worker, "--now"},
		"ignores TERM, now":  {stubborn, "--now"},
		"stopped by a debug": {`echo $$ >sh; sleep 300 & echo $! >child; kill -STOP $$`, "--yes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := w.start("run", "--stale", "6s", "n", "--", "sh", "-c", c.command)
			sh, child := w.pid("sh"), w.pid("child")
			w.run("release", "n", "--force", "--reason", "test", c.flag).want(0)
			if c.flag != "--now" {
				// Nobody else may begin while anything of it is there.
				pgtest.WaitFor(t, "the row to go or the group to end", func() bool {
					free, there := len(w.holders("n")) == 0, alive(sh) || alive(child)
					if free && there {
						t.Fatal("the lock is free beside the command's processes")
					}
					return free
				})
			}
			p.want(76).says(`lost "n": released by operator`)
			gone(t, sh, child)
			w.isFree("n")
		})
	}
}

// A lost lock is 76 even when the command ended well in its grace time.
func TestLossBeatsSuccess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range []struct {
		flags []string
		code  int
	}{{nil, 76}, {[]string{"--lost-exit-code", "42"}, 42}} {
		args := append([]string{"run", "--stale", "6s"}, c.flags...)
		p := w.start(append(args, "n", "--", "sh", "-c", `trap "exit 0" TERM; echo up >up; while :; do sleep 0.02; done`)...)
		w.await("up")
		w.run("release", "n", "--force").want(0)
		p.want(c.code).says("released by operator")
		pgtest.Must(t, os.Remove(w.file("up")))
	}
}

// The grace time is as long as --kill-after says, where there is that much.
func TestKillAfter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start("run", "--stale", "60s", "--heartbeat", "200ms", "--kill-after", "300ms", "n", "--", "sh", "-c", stubborn)
	sh, child := w.pid("sh"), w.pid("child")
	at := time.Now()
	w.run("release", "n", "--force").want(0)
	p.want(76)
	if took := time.Since(at); took > 20*time.Second {
		t.Errorf("ended %v after the release", took)
	}
	gone(t, sh, child)
}

// A holder that is cut off ends its command before the next one may begin.
func TestCutOffHolder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	proxy := faultconn.New(t, pgtest.Shared(t).Addr())
	far := *w
	far.dsn = proxy.DSN(w.dsn)
	p := far.start("run", "--stale", "4s", "n", "--", "sh", "-c", stubborn)
	sh, child := w.pid("sh"), w.pid("child")
	proxy.Freeze(faultconn.Both)
	next := w.start("run", "--wait", "30s", "n", "--", "sh", "-c",
		`for p in $(cat sh child); do kill -0 $p 2>/dev/null && ! grep -q '^State:.Z' /proc/$p/status 2>/dev/null && exit 9; done; exit 0`)
	next.want(0)
	p.want(76).says("no heartbeat has been confirmed for")
	if strings.Contains(p.stderr(), "confirmed again") {
		t.Errorf("what has ended is told as confirmed: %s", p.stderr())
	}
	gone(t, sh, child)
	w.isFree("n")
}

// A wrapper that was stopped beyond its deadline reports the loss, changes
// nothing of the next holder's, and its command is gone before that begins.
func TestStoppedWrapper(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start("run", "--stale", "3s", "n", "--", "sh", "-c", stubborn)
	sh, child := w.pid("sh"), w.pid("child")
	first := w.awaitHolder("n")
	p.signal(syscall.SIGSTOP)
	next := w.start("run", "--stale", "60s", "n", "--", "sh", "-c",
		`for p in $(cat sh child); do kill -0 $p 2>/dev/null && ! grep -q '^State:.Z' /proc/$p/status 2>/dev/null && exit 9; done; `+
			`echo on >on; while [ ! -e end ]; do sleep 0.02; done`)
	w.await("on")
	term := w.awaitHolder("n")
	if term == first {
		t.Fatal("the stopped run still holds the lock")
	}
	p.signal(syscall.SIGCONT)
	p.want(76).says("taken over")
	gone(t, sh, child)
	if got := w.holders("n"); !slices.Equal(got, []string{term}) {
		t.Errorf("the next holder's row became %q", got)
	}
	w.run("run", "-n", "n", "true").want(75)
	pgtest.Must(t, os.WriteFile(w.file("end"), nil, 0o600))
	next.want(0)
	w.isFree("n")
}

// The killed wrapper takes command and descendants with it; the lock is taken
// over once it is stale, by a try too, and not before.
func TestKilledWrapper(t *testing.T) {
	t.Parallel()
	for name, command := range map[string]string{
		"a shell and its child": worker,
		"ignoring TERM":         stubborn,
		"the shell has gone":    `echo $$ >sh; (trap "" HUP TERM; sleep 300) & echo $! >child; sleep 300`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := w.start("run", "--stale", "5s", "n", "--", "sh", "-c", command)
			sh, child := w.pid("sh"), w.pid("child")
			w.awaitHolder("n")
			p.signal(syscall.SIGKILL)
			gone(t, sh, child)
			w.run("run", "-n", "n", "true").want(75).says("stale in")
		})
	}
}

// After kill -9 of wrapper and command the lock is taken over when it is stale.
func TestTakeover(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start("run", "--stale", "5s", "n", "--", "sh", "-c", worker)
	sh := w.pid("sh")
	w.awaitHolder("n")
	next := w.start("run", "--wait", "30s", "n", "--", "sh", "-c", `echo on >on`)
	pgtest.WaitFor(t, "somebody to wait", func() bool {
		return pgtest.One[int64](t, w.dsn, "SELECT count(*) FROM public.mutex_lock_waiter") > 0
	})
	p.signal(syscall.SIGKILL)
	_ = syscall.Kill(-sh, syscall.SIGKILL)
	at := time.Now()
	next.want(0)
	w.await("on")
	// The last heartbeat was up to 0.4 s before; the rest is slack for the host.
	if took := time.Since(at); took < 4*time.Second || took > 15*time.Second {
		t.Errorf("taken over after %v", took)
	}
	age := pgtest.One[float64](t, w.dsn, `SELECT extract(epoch FROM ended_at - acquired_at)::float8
		FROM public.mutex_lock_event WHERE lock_name = 'n' AND how = 'taken over'`)
	if age < 5 {
		t.Errorf("the store says that the hold ended %v s after it began", age)
	}
	// A try takes a stale lock at once.
	p = w.start("run", "--stale", "1s", "m", "--", "sh", "-c", `echo $$ >m; sleep 300`)
	sh = w.pid("m")
	p.signal(syscall.SIGKILL)
	gone(t, sh)
	stale := "SELECT clock_timestamp() - last_heartbeat > stale_after FROM public.mutex_lock WHERE lock_name = 'm'"
	pgtest.WaitFor(t, "the hold to be stale", func() bool { return pgtest.One[bool](t, w.dsn, stale) })
	w.run("run", "-n", "m", "true").want(0)
}

// A watchdog that is killed is replaced.
func TestWatchdogIsReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start("run", "--stale", "5s", "n", "--", "sh", "-c", worker)
	sh, child := w.pid("sh"), w.pid("child")
	dog := watchdogOf(t, p.cmd.Process.Pid)
	pgtest.Must(t, syscall.Kill(dog, syscall.SIGKILL))
	pgtest.WaitFor(t, "another watchdog", func() bool {
		d := watchdogOf(t, p.cmd.Process.Pid)
		return d != 0 && d != dog
	})
	p.signal(syscall.SIGKILL)
	gone(t, sh, child)
}

// watchdogOf returns the process id of a wrapper's watchdog, 0 without one.
func watchdogOf(t *testing.T, wrapper int) int {
	t.Helper()
	out, err := exec.Command("ps", "-axo", "pid=,ppid=,args=").Output()
	pgtest.Must(t, err)
	for line := range strings.Lines(string(out)) {
		var pid, parent int
		var name string
		if _, err := fmt.Sscan(line, &pid, &parent, &name); err == nil && parent == wrapper && name == "lock-watchdog" {
			return pid
		}
	}
	return 0
}
