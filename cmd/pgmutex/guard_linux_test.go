package main_test

import (
	"syscall"
	"testing"
)

// With wrapper and watchdog out of the way, the kernel ends the command itself.
func TestKilledWrapperAndWatchdog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start("run", "--stale", "5s", "n", "--", "sh", "-c", `echo $$ >sh; while :; do sleep 0.1; done`)
	sh := w.pid("sh")
	dog := watchdogOf(t, p.cmd.Process.Pid)
	if err := syscall.Kill(dog, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(dog, syscall.SIGKILL)
	p.signal(syscall.SIGKILL)
	gone(t, sh)
}
