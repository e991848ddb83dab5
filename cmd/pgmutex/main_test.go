package main_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// program is the built command.
var program string

func TestMain(m *testing.M) {
	countIfAsked()
	dir, err := os.MkdirTemp("", "pgmutex")
	if err != nil {
		panic(err)
	}
	program = filepath.Join(dir, "pgmutex")
	build := exec.Command("go", "build", fmt.Sprintf("-race=%t", raceDetector), "-o", program, ".")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the command: %v\n%s", err, out)
		os.Exit(1)
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // each program would sleep for a second
	for _, name := range []string{
		"PGMUTEX_URL", "PGMUTEX_TERM", "PGMUTEX_OUTER", "PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE", "PGSERVICE", "PGPASSWORD",
	} {
		os.Unsetenv(name)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// world is a database of a test's own and a directory for files.
type world struct {
	t   *testing.T
	dsn string
	dir string

	stdout string // a file that seats write to instead
}

// newWorld makes a world whose schema is set up.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := emptyWorld(t)
	w.run("init").want(0)
	return w
}

func emptyWorld(t *testing.T) *world {
	t.Helper()
	return &world{t: t, dsn: pgtest.Shared(t).Database(t), dir: t.TempDir()}
}

// file names a file in the world's directory.
func (w *world) file(name string) string { return filepath.Join(w.dir, name) }

// read returns a file's text, empty if it does not exist.
func (w *world) read(name string) string {
	b, _ := os.ReadFile(w.file(name))
	return string(b)
}

// await waits until a file has a whole line, and returns it.
func (w *world) await(name string) string {
	w.t.Helper()
	pgtest.WaitFor(w.t, "a line in "+name, func() bool { return strings.HasSuffix(w.read(name), "\n") })
	return strings.TrimSpace(w.read(name))
}

// pid waits for a file with a process id.
func (w *world) pid(name string) int {
	w.t.Helper()
	pid, err := strconv.Atoi(w.await(name))
	if err != nil {
		w.t.Fatalf("%s: %v", name, err)
	}
	return pid
}

// process is the command, running or ended.
type process struct {
	t        *testing.T
	cmd      *exec.Cmd
	out, err string // files, so that nothing waits for who else has them open
	done     chan struct{}
	took     time.Duration
}

// start starts the command on the world's database.
func (w *world) start(args ...string) *process {
	w.t.Helper()
	return w.startWith(func(*exec.Cmd) {}, args...)
}

func (w *world) startWith(change func(*exec.Cmd), args ...string) *process {
	w.t.Helper()
	p := &process{t: w.t, cmd: exec.Command(program, args...), done: make(chan struct{})}
	p.cmd.Dir = w.dir
	p.cmd.Env = append(os.Environ(), "PGMUTEX_URL="+w.dsn)
	out, err := os.CreateTemp(w.dir, "stdout")
	pgtest.Must(w.t, err)
	defer out.Close()
	errs, err := os.CreateTemp(w.dir, "stderr")
	pgtest.Must(w.t, err)
	defer errs.Close()
	p.out, p.err = out.Name(), errs.Name()
	p.cmd.Stdout, p.cmd.Stderr = out, errs
	change(p.cmd)
	began := time.Now()
	pgtest.Must(w.t, p.cmd.Start())
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // its state says it all
		p.took = time.Since(began)
	}()
	w.t.Cleanup(func() {
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
		_ = p.cmd.Process.Kill()
		<-p.done
		if w.t.Failed() {
			w.t.Logf("%q: %v\nstdout: %sstderr: %s", args, p.cmd.ProcessState, p.stdout(), p.stderr())
		}
	})
	return p
}

// addEnv adds to the environment.
func addEnv(env ...string) func(*exec.Cmd) {
	return func(c *exec.Cmd) { c.Env = append(c.Env, env...) }
}

// run runs the command to its end.
func (w *world) run(args ...string) *process {
	w.t.Helper()
	return w.start(args...).wait()
}

const patience = 60 * time.Second

// wait waits for the end.
func (p *process) wait() *process {
	p.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		p.t.Fatalf("%q has not ended within %v", p.cmd.Args[1:], patience)
	}
	return p
}

// want checks the exit code after the end.
func (p *process) want(code int) *process {
	p.t.Helper()
	p.wait()
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.t.Errorf("%q: exit code %d, want %d (%v); stderr: %s", p.cmd.Args[1:], got, code, p.cmd.ProcessState, p.stderr())
	}
	return p
}

func (p *process) stdout() string { return contents(p.out) }
func (p *process) stderr() string { return contents(p.err) }

func contents(file string) string {
	b, _ := os.ReadFile(file)
	return string(b)
}

// says checks that standard error has each of the texts.
func (p *process) says(texts ...string) *process {
	p.t.Helper()
	for _, text := range texts {
		if !strings.Contains(p.stderr(), text) {
			p.t.Errorf("%q: stderr %q does not contain %q", p.cmd.Args[1:], p.stderr(), text)
		}
	}
	return p
}

// silent checks that standard error is empty.
func (p *process) silent() *process {
	p.t.Helper()
	if got := p.stderr(); got != "" {
		p.t.Errorf("%q: stderr is %q, want nothing", p.cmd.Args[1:], got)
	}
	return p
}

// noWords checks that standard error has nothing of ours.
func (p *process) noWords() *process {
	p.t.Helper()
	if strings.Contains(p.stderr(), "pgmutex:") {
		p.t.Errorf("%q: stderr is %q", p.cmd.Args[1:], p.stderr())
	}
	return p
}

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatalf("signal %v: %v", sig, err)
	}
}

// alive tells whether a process is there and no zombie.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !isLinux() // gone in between, or a system without /proc
	}
	_, rest, _ := bytes.Cut(stat, []byte(") "))
	return !bytes.HasPrefix(rest, []byte("Z"))
}

func isLinux() bool { _, err := os.Stat("/proc/self/stat"); return err == nil }

// gone waits until processes have ended.
func gone(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		pgtest.WaitFor(t, fmt.Sprintf("process %d to end", pid), func() bool { return !alive(pid) })
	}
}

// holders returns the terms of a lock's rows: one or none.
func (w *world) holders(lock string) []string {
	w.t.Helper()
	return pgtest.Column[string](w.t, w.dsn, "SELECT instance_id FROM public.mutex_lock WHERE lock_name = $1", lock)
}

// free waits until nobody holds a lock.
func (w *world) free(lock string) {
	w.t.Helper()
	pgtest.WaitFor(w.t, lock+" to be free", func() bool { return len(w.holders(lock)) == 0 })
}

// isFree checks that nobody holds a lock at this moment.
func (w *world) isFree(lock string) {
	w.t.Helper()
	if got := w.holders(lock); len(got) > 0 {
		w.t.Errorf("%s is held by %q", lock, got)
	}
}

// awaitHolder waits until somebody holds a lock and returns the term.
func (w *world) awaitHolder(lock string) string {
	w.t.Helper()
	var got []string
	pgtest.WaitFor(w.t, lock+" to be held", func() bool { got = w.holders(lock); return len(got) == 1 })
	return got[0]
}

// hold starts a command that holds a lock until the returned function ends it.
func (w *world) hold(lock string, flags ...string) (p *process, end func()) {
	w.t.Helper()
	stop := w.file("stop-" + lock)
	args := append(append([]string{"run"}, flags...), lock, "--", "sh", "-c", `while [ ! -e "$0" ]; do sleep 0.02; done`, stop)
	p = w.start(args...)
	w.awaitHolder(lock)
	return p, func() {
		w.t.Helper()
		pgtest.Must(w.t, os.WriteFile(stop, nil, 0o600))
		p.wait()
	}
}
