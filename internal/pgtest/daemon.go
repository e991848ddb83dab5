package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A Program is a server of somebody else's, to be compared with or put between.
type Program struct {
	// Name is the program's, or several paths where it may be.
	Name []string
	// Package is the Debian package that has it.
	Package string
	// Ports is how many it listens on; the first is the one that is waited for.
	Ports int
	// Args are its arguments, given its directory and its ports, all on
	// 127.0.0.1. The directory, which is removed in the end, has to be among them:
	// by it the watchdog knows whom to end.
	Args func(dir string, ports []int) []string
}

// Daemon is a running [Program].
type Daemon struct {
	Path    string // of the program
	dir     *scratch
	ports   []int
	process *process
}

// NewDaemon starts a program in a directory of its own and returns when it
// listens. It is ended, and the directory removed, with the test.
func NewDaemon(t testing.TB, p Program) *Daemon {
	t.Helper()
	d, err := runDaemon(t.Context(), p, progress(t.Log))
	if err != nil {
		t.Fatalf("start %s: %v", p.Package, err)
	}
	t.Cleanup(func() {
		if err := d.close(); err != nil {
			t.Errorf("stop %s: %v", p.Package, err)
		}
	})
	return d
}

func runDaemon(ctx context.Context, p Program, progress progress) (*Daemon, error) {
	path, err := findProgram(ctx, p.Name, p.Package, progress)
	if err != nil {
		return nil, err
	}
	who, err := unprivileged()
	if err != nil {
		return nil, err
	}
	dir, err := newScratch("", who)
	if err != nil {
		return nil, err
	}
	d := &Daemon{Path: path, dir: dir}
	for range 10 {
		d.ports = nil
		for range p.Ports {
			port, err := freePort()
			if err != nil {
				return nil, errors.Join(err, dir.remove())
			}
			d.ports = append(d.ports, port)
		}
		d.process, err = dir.serve(ctx, "daemon", d.Addr(), append([]string{path}, p.Args(dir.path, d.ports)...))
		if err == nil {
			return d, nil
		}
		if !strings.Contains(err.Error(), inUse) {
			break
		}
	}
	return nil, errors.Join(err, dir.remove())
}

func (d *Daemon) close() error {
	return errors.Join(d.process.end(syscall.SIGKILL), d.dir.remove())
}

// Addr is where the program listens with its first port.
func (d *Daemon) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(d.ports[0])) }

// inUse is in what programs say when somebody else took the port before them.
const inUse = "ddress already in use"

// findProgram looks for a program by its names and installs its package last.
func findProgram(ctx context.Context, names []string, pkg string, p progress) (string, error) {
	look := func() string {
		for _, name := range names {
			if path, err := exec.LookPath(name); err == nil {
				return path
			}
		}
		return ""
	}
	if path := look(); path != "" {
		return path, nil
	}
	if err := aptInstall(ctx, pkg, p); err != nil {
		return "", fmt.Errorf("no %s found (apt-get, dnf or brew install it): %w", names[0], err)
	}
	if path := look(); path != "" {
		return path, nil
	}
	return "", fmt.Errorf("no %s found, not even after installing its package", names[0])
}

// serve starts argv, logging to name.log, and returns when it listens on addr.
func (s *scratch) serve(ctx context.Context, name, addr string, argv []string) (*process, error) {
	log := s.file(name + ".log")
	p, err := s.launch(name, log, nil, argv...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startBound)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
			// Somebody else may listen there: then our own process ends.
			if p.running() {
				return p, nil
			}
		}
		select {
		case <-tick.C:
		case <-p.done:
			text, _ := os.ReadFile(log)
			return nil, fmt.Errorf("%s ended while starting (%v):\n%s", name, p.err, text) //nolint:errorlint // nil after a success
		case <-ctx.Done():
			return nil, fmt.Errorf("%s does not listen: %w", name, errors.Join(ctx.Err(), p.end(syscall.SIGKILL)))
		}
	}
}
