package main_test

import (
	"os"
	"os/exec"
	"testing"
)

// inNamespace makes the program start through unshare(1), and skips the test
// where that is not allowed.
func inNamespace(t *testing.T, script string, flags ...string) func(*exec.Cmd) {
	t.Helper()
	if err := exec.Command("unshare", append(flags, "true")...).Run(); err != nil {
		t.Skipf("unshare %q: %v", flags, err)
	}
	return func(c *exec.Cmd) {
		args := append(append([]string{}, flags...), "sh", "-c", script+`exec "$@"`, "sh", program)
		next := exec.Command("unshare", append(args, c.Args[1:]...)...)
		next.Dir, next.Env, next.Stdout, next.Stderr = c.Dir, c.Env, c.Stdout, c.Stderr
		*c = *next
	}
}

// As the first process of a container it reaps what the command leaves behind,
// passes signals on and gives the lock back.
func TestFirstProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := inNamespace(t, "", "--pid", "--fork", "--mount-proc", "--kill-child")
	w.startWith(first, "run", "n", "--", "sh", "-c", `
		[ $PPID = 1 ] || exit 8
		(sleep 0.1 & echo $! >orphan)
		for i in $(seq 500); do [ -e /proc/$(cat orphan) ] || exit 5; sleep 0.02; done; exit 9`).want(5).silent()
	w.isFree("n")
	w.startWith(first, "run", "n", "--", "sh", "-c", `trap "exit 6" TERM; kill -TERM 1; while :; do sleep 0.02; done`).want(6)
	w.startWith(first, "run", "n", "--", "sh", "-c", `kill -TERM 1; while :; do sleep 0.02; done`).want(143)
	w.isFree("n")
}

// Without /proc there is no watchdog. The command runs all the same, and that is
// said, once.
func TestNoWatchdog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if os.Getuid() != 0 {
		t.Skip("only root can hide /proc")
	}
	bare := inNamespace(t, "umount -l /proc; ", "--mount")
	w.startWith(bare, "run", "n", "--", "sh", "-c", "exit 4").want(4).says("no watchdog")
	w.startWith(bare, "run", "-q", "n", "--", "sh", "-c", "exit 4").want(4).noWords()
}
