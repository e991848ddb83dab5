package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Kill ends the postmaster and all its children with SIGKILL, as a crash of the
// machine would, and returns when all of them are gone. The next Start recovers.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.mayChange(); err != nil {
		return err
	}
	if !s.postgres.running() {
		return nil
	}
	// A stopped postmaster starts no more children while they are listed.
	postmaster := s.postgres.pid
	if err := signal(postmaster, sigStop); err != nil {
		return err
	}
	pids, err := children(postmaster)
	err = errors.Join(err, signal(postmaster, syscall.SIGKILL))
	for _, pid := range pids {
		if failed := signal(pid, syscall.SIGKILL); !errors.Is(failed, syscall.ESRCH) {
			err = errors.Join(err, failed)
		}
	}
	<-s.postgres.done
	return errors.Join(err, gone(pids))
}

// Freeze stops the postmaster and all its children in their tracks: connections
// stay open and nothing is answered, until Thaw.
func (s *Server) Freeze() error { return s.signalAll(sigStop) }

// Thaw lets a frozen server go on.
func (s *Server) Thaw() error { return s.signalAll(sigCont) }

func (s *Server) signalAll(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.mayChange(); err != nil {
		return err
	}
	if !s.postgres.running() {
		return errors.New("the server is not running")
	}
	return s.signalTree(sig)
}

// signalTree signals the running postmaster, then its children: a stopped
// postmaster starts no more of them.
func (s *Server) signalTree(sig syscall.Signal) error {
	err := signal(s.postgres.pid, sig)
	pids, failed := children(s.postgres.pid)
	err = errors.Join(err, failed)
	for _, pid := range pids {
		if failed := signal(pid, sig); !errors.Is(failed, syscall.ESRCH) {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// SignalBackend sends a signal to one server process, by the pid that
// pg_backend_pid or pg_stat_activity shows. It refuses a pid that is no child of
// this server. Anything but SIGSTOP and SIGCONT to a backend of the shared server
// may reset the sessions of other tests.
func (s *Server) SignalBackend(pid int32, sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.postgres.running() {
		return errors.New("the server is not running")
	}
	pids, err := children(s.postgres.pid)
	if err != nil {
		return err
	}
	for _, ours := range pids {
		if ours == int(pid) {
			return signal(ours, sig)
		}
	}
	return fmt.Errorf("process %d is no child of this server", pid)
}

// children lists the processes whose parent is pid.
func children(parent int) ([]int, error) {
	table, err := processes()
	var pids []int
	for _, p := range table {
		if p.parent == parent {
			pids = append(pids, p.pid)
		}
	}
	return pids, err
}

// gone waits until none of pids runs. A zombie does not: in a container nobody
// may reap it.
func gone(pids []int) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopBound)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		table, err := processes()
		if err != nil {
			return err
		}
		left := 0
		for _, p := range table {
			for _, pid := range pids {
				if p.pid == pid && !p.zombie {
					left++
				}
			}
		}
		if left == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%d server processes survive SIGKILL", left)
		}
	}
}

type processInfo struct {
	pid, parent int
	zombie      bool
}

// processes reads the process table: from /proc on Linux, where ps may be
// missing, from ps elsewhere.
func processes() ([]processInfo, error) {
	if _, err := os.Stat("/proc/self/stat"); err == nil {
		return procProcesses()
	}
	out, err := exec.Command("ps", "-axo", "pid=,ppid=,stat=").Output()
	if err != nil {
		return nil, fmt.Errorf("ps: %w", err)
	}
	var table []processInfo
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) == 3 {
			table = append(table, processInfo{number(f[0]), number(f[1]), f[2][0] == 'Z'})
		}
	}
	return table, nil
}

func procProcesses() ([]processInfo, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var table []processInfo
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // ended meanwhile
		}
		// The second field is a name in brackets and may hold anything.
		text := string(stat)
		if f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:]); len(f) > 2 {
			table = append(table, processInfo{pid, number(f[1]), f[0] == "Z"})
		}
	}
	return table, nil
}

// removeSegment removes the System V segment that a killed postmaster leaves; one
// that shut down has removed it itself. Line 7 of postmaster.pid is its key and
// id.
func (s *Server) removeSegment() {
	text, err := os.ReadFile(s.data() + "/postmaster.pid")
	if err != nil {
		return // shut down, or never started
	}
	lines := strings.Split(string(text), "\n")
	if len(lines) < 7 {
		return
	}
	if f := strings.Fields(lines[6]); len(f) == 2 {
		// Best effort: 56 bytes, and not every system has the program.
		_ = exec.Command("ipcrm", "-m", f[1]).Run()
	}
}
