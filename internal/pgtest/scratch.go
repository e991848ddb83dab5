package pgtest

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// maxDir keeps Unix socket paths under 100 bytes; the kernel's limit is 104 or
// 108, and "/.s.PGSQL.12345" comes after the directory.
const maxDir = 80

//go:embed watchdog.sh
var watchdogScript string

// scratch is a directory, the processes started in it, and the watchdog that
// ends both.
type scratch struct {
	path string
	who  identity

	mu       sync.Mutex
	lifeline *os.File // the only write end; its closing is the watchdog's signal
	watchdog *exec.Cmd
}

// newScratch makes a directory under parent ("" for the system's) and starts
// its watchdog.
func newScratch(parent string, who identity) (*scratch, error) {
	given := parent != ""
	if !given {
		parent = os.TempDir()
	}
	// A TMPDIR inside somebody's home is closed to the server's user, and a deep
	// one makes socket paths too long: both are common, and /tmp is neither.
	if !given && (!who.reaches(parent) || len(parent) > maxDir-15) {
		parent = "/tmp"
	}
	path, err := os.MkdirTemp(parent, "pgm")
	if err != nil {
		return nil, err
	}
	s := &scratch{path: path, who: who}
	if err := s.prepare(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	return s, nil
}

func (s *scratch) prepare() error {
	if len(s.path) > maxDir || strings.ContainsAny(s.path, "'\\\n") {
		return fmt.Errorf("directory %q is unfit for a server: it must be short (%d bytes) and without quotes", s.path, maxDir)
	}
	if err := os.Mkdir(s.file("pids"), 0o755); err != nil {
		return err
	}
	for _, path := range []string{s.path, s.file("pids")} {
		if err := os.Chmod(path, 0o711); err != nil {
			return err
		}
		if err := s.who.own(path); err != nil {
			return err
		}
	}
	if !s.who.reaches(s.path) {
		return fmt.Errorf("the server's user cannot reach %s: every directory above it needs the x bit for others", s.path)
	}

	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd := exec.Command("/bin/sh", "-c", watchdogScript, "pgtest-watchdog", s.path)
	identity{}.apply(cmd) // a session of its own, but our user: it removes our files too
	cmd.Dir = "/"
	cmd.Stdin = r
	if err := cmd.Start(); err != nil {
		w.Close()
		return fmt.Errorf("start watchdog: %w", err)
	}
	s.lifeline, s.watchdog = w, cmd
	return nil
}

func (s *scratch) file(name string) string { return filepath.Join(s.path, name) }

// write makes a file that the server's user can read.
func (s *scratch) write(name, text string) error {
	path := s.file(name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return err
	}
	return s.who.own(path)
}

// command prepares a program that runs as the server's user in the directory,
// in an environment without PG* variables of the caller's.
func (s *scratch) command(argv []string, env []string) *exec.Cmd {
	cmd := exec.Command(argv[0], argv[1:]...)
	s.who.apply(cmd)
	cmd.Dir = s.path
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "PG") && !strings.HasPrefix(kv, "LC_") && !strings.HasPrefix(kv, "LANG") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(append(cmd.Env, "LC_ALL=C"), env...)
	return cmd
}

// remove ends whatever still runs in the directory and removes it. It returns
// when both have happened; a second call does nothing.
func (s *scratch) remove() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lifeline == nil {
		return nil
	}
	s.lifeline.Close()
	s.lifeline = nil
	if err := s.watchdog.Wait(); err != nil {
		return fmt.Errorf("watchdog of %s: %w", s.path, err)
	}
	return nil
}

// process is a server program started in a scratch directory.
type process struct {
	pid  int
	done chan struct{} // closed when it has ended and was reaped
	err  error         // valid then
}

// launch starts argv in the background, output appended to log. The process
// writes its own pid file before it becomes argv, so there is no moment at which
// the watchdog does not know it.
func (s *scratch) launch(name, log string, env []string, argv ...string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	const wrapper = `echo $$ >"$1" && shift && exec "$@"`
	cmd := s.command(append([]string{"/bin/sh", "-c", wrapper, "sh", s.file("pids/" + name)}, argv...), env)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{pid: cmd.Process.Pid, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// running reports whether p has been started and has not ended.
func (p *process) running() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// end sends sig and waits; after stopBound it kills and says so.
func (p *process) end(sig syscall.Signal) error {
	if !p.running() {
		return nil
	}
	if err := signal(p.pid, sig); err != nil && p.running() {
		return err
	}
	timer := time.NewTimer(stopBound)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
	}
	err := signal(p.pid, syscall.SIGKILL)
	<-p.done
	return errors.Join(fmt.Errorf("process %d did not stop within %v and was killed", p.pid, stopBound), err)
}

// ReadableFile makes a file with a text, which every user can read: the server may
// run as another one. It is removed when the test ends.
func ReadableFile(t testing.TB, text string) (path string) {
	t.Helper()
	f, err := os.CreateTemp("", "pgmutex-") //nolint:usetesting // t.TempDir is for us alone
	Must(t, err)
	t.Cleanup(func() { _ = os.Remove(f.Name()) })
	_, err = f.WriteString(text)
	Must(t, errors.Join(err, f.Chmod(0o644), f.Close()))
	return f.Name()
}
