//go:build unix

package supervise

import (
	"bufio"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// watchdogName is how the watchdog recognises itself, by its argument zero. The
// program's own name is not part of it: "pkill pgmutex" means wrappers.
const watchdogName = "lock-watchdog"

// watchdogFD is the end of the pipe that it reads.
const watchdogFD = 3

// A watchdog is started for each run and lives as long: it becomes one before the
// packages of the rest of the program cost time and memory. Packages are
// initialised in the order of their paths, once what they import is.
func init() { //nolint:gochecknoinits // no state is set up, another program begins
	if IsWatchdog() {
		Watchdog()
	}
}

// IsWatchdog tells whether this process was started as a watchdog.
func IsWatchdog() bool { return len(os.Args) > 0 && os.Args[0] == watchdogName }

// Watchdog is the whole life of a watchdog. It never returns.
func Watchdog() {
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTSTP)
	if kind := fileKind(watchdogFD); kind != unix.S_IFIFO {
		os.Exit(64) // started by hand
	}
	closeInherited()
	_ = os.Chdir("/")                                                // pins no file system
	_ = os.WriteFile("/proc/self/comm", []byte(watchdogName), 0o600) // for ps, where there is /proc
	guard(os.NewFile(watchdogFD, "wrapper"))
	os.Exit(0)
}

// guard watches until the pipe closes.
func guard(pipe io.Reader) {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(pipe); s.Scan(); {
			lines <- s.Text()
		}
	}()
	var w watch
	strays := newSweeper()
	timer := time.NewTimer(0)
	for {
		select {
		case line, open := <-lines:
			if !open {
				// A wrapper that has nothing to guard any more ends its watchdog
				// before it goes.
				signalGroup(w.group, unix.SIGKILL)
				strays.finish(w.group)
				return
			}
			_ = w.hear(line) // our own other half speaks no nonsense
			strays.of = w.origin
		case n := <-strays.found:
			strays.done(n)
		case <-timer.C:
		}
		do, nap := w.due(now())
		switch do {
		case terminate:
			signalGroup(w.group, unix.SIGTERM)
			signalGroup(w.group, unix.SIGCONT)
			strays.sweep(now(), w.group, unix.SIGTERM)
		case kill:
			signalGroup(w.group, unix.SIGKILL)
			strays.finish(w.group)
		}
		timer.Reset(nap)
	}
}

// signalGroup never signals our own group, nor everybody.
func signalGroup(group int, sig syscall.Signal) {
	if group > 1 && group != unix.Getpgrp() {
		_ = unix.Kill(-group, sig) // ESRCH: nobody is left, which is what is wanted
	}
}

func fileKind(fd int) uint32 {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0
	}
	return uint32(st.Mode) & unix.S_IFMT //nolint:unconvert // 16 bits on darwin
}

// closeInherited closes descriptors that the wrapper was started with and that
// somebody may wait to see closed. Those of the Go runtime are close-on-exec.
func closeInherited() {
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		return
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= watchdogFD {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
}

// startWatchdog starts a watchdog and returns its pid and our end of its pipe.
func startWatchdog() (pid int, pipe *os.File, err error) {
	executable, err := ownExecutable()
	if err != nil {
		return 0, nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, nil, err
	}
	defer null.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return 0, nil, err
	}
	defer r.Close()
	pid, err = syscall.ForkExec(executable, []string{watchdogName}, &syscall.ProcAttr{
		Env:   []string{"GOMAXPROCS=1", "GOTRACEBACK=none"},
		Files: []uintptr{null.Fd(), null.Fd(), null.Fd(), r.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		w.Close()
		return 0, nil, err
	}
	runtime.KeepAlive(null)
	return pid, w, nil
}
