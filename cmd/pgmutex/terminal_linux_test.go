package main_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// console is a terminal with an interactive shell on it.
type console struct {
	t      *testing.T
	master *os.File

	mu   sync.Mutex
	seen bytes.Buffer
	from int // what has been looked at
}

// newConsole starts argv, or an interactive shell, on a terminal of its own.
func (w *world) newConsole(argv ...string) (*console, *exec.Cmd) {
	w.t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	pgtest.Must(w.t, err)
	raw, err := master.SyscallConn()
	pgtest.Must(w.t, err)
	number := 0
	pgtest.Must(w.t, raw.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err == nil {
			number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	}))
	pgtest.Must(w.t, err)
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	pgtest.Must(w.t, err)
	defer slave.Close()
	if len(argv) == 0 {
		argv = []string{"bash", "--norc", "--noediting", "-i"}
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = w.dir
	cmd.Env = append(os.Environ(), "PGMUTEX_URL="+w.dsn, "PS1=$ ", "PGM="+program)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	pgtest.Must(w.t, cmd.Start())
	c := &console{t: w.t, master: master}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			c.mu.Lock()
			c.seen.Write(buf[:n])
			c.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	w.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		master.Close()
		<-done
		if w.t.Failed() {
			w.t.Logf("terminal: %q", c.seen.String())
		}
	})
	return c, cmd
}

// text is everything that was shown so far.
func (c *console) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen.String()
}

// typed sends keys.
func (c *console) typed(keys string) {
	c.t.Helper()
	_, err := c.master.WriteString(keys)
	pgtest.Must(c.t, err)
}

// shows waits for a text that comes after the last one that was waited for.
func (c *console) shows(text string) {
	c.t.Helper()
	pgtest.WaitFor(c.t, fmt.Sprintf("%q on the terminal", text), func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		i := strings.Index(c.seen.String()[c.from:], text)
		if i >= 0 {
			c.from += i + len(text)
		}
		return i >= 0
	})
}

// The echo of what is typed contains the quotes, the answer does not.
const askCode = "echo co''de=$?\n"

// The command reads the terminal and gets Ctrl-C once.
func TestTerminal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, _ := w.newConsole()
	c.typed("$PGM run n cat\n")
	w.awaitHolder("n")
	c.typed("he''llo\n")
	c.shows("he''llo\r\nhe''llo")
	c.typed("\x04")
	w.free("n")
	c.typed(askCode)
	c.shows("code=0")

	c.typed(`$PGM run n -- sh -c 'trap "echo got >>got" INT; echo up >up; while [ ! -e end ]; do sleep 0.02; done; exit 5'` + "\n")
	w.await("up")
	c.typed("\x03")
	w.await("got")
	pgtest.Must(t, os.WriteFile(w.file("end"), nil, 0o600))
	w.free("n")
	c.typed(askCode)
	c.shows("code=5")
	if got := w.read("got"); got != "got\n" {
		t.Errorf("Ctrl-C came %d times", strings.Count(got, "\n"))
	}

	// The shell's loop ends with its command, as it does without a wrapper.
	c.typed("for i in 1 2 3; do echo $i >>rounds; $PGM run n sleep 300; done\n")
	w.awaitHolder("n")
	c.typed("\x03")
	w.free("n")
	c.typed(askCode)
	c.shows("code=130")
	if got := w.read("rounds"); got != "1\n" {
		t.Errorf("the loop went on: %q", got)
	}
}

// Ctrl-Z stops command and wrapper, and fg continues both.
func TestJobControl(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, _ := w.newConsole()
	for name, line := range map[string]string{
		"alone":       `$PGM run n -- sh -c 'echo up >up; read x; echo "got <$x>"'`,
		"in a script": `bash -c '$PGM run n -- sh -c "echo up >up; read x; echo \"got <\$x>\""; true'`,
		"with a pipe": `$PGM run n -- sh -c 'echo up >up; read x </dev/tty; echo "got <$x>"' | cat`,
	} {
		t.Run(name, func(t *testing.T) {
			c.typed(line + "\n")
			w.await("up")
			c.typed("\x1a")
			c.shows("Stopped")
			c.typed("fg\n")
			c.typed("word\n")
			c.shows("got <word>")
			w.free("n")
			pgtest.Must(t, os.Remove(w.file("up")))
		})
	}
	t.Run("in the background", func(t *testing.T) {
		c.typed(`$PGM run n -- sh -c 'echo $PPID >ppid; read x; echo "got <$x>"' &` + "\n")
		wrapper := w.pid("ppid")
		pgtest.WaitFor(t, "the wrapper to stop", func() bool { return stopped(t, wrapper) })
		c.typed("\n")
		c.shows("Stopped")
		c.typed("fg\n")
		c.typed("word\n")
		c.shows("got <word>")
		w.free("n")
	})
	t.Run("beyond the deadline", func(t *testing.T) {
		// A builtin is waited for: a program that Ctrl-Z meets between vfork and exec
		// leaves its shell waiting in the kernel, so that nobody sees that one stop.
		c.typed(`$PGM run --stale 2s n -- sh -c 'echo $$ >pid; read x'` + "\n")
		pid := w.pid("pid")
		c.typed("\x1a")
		c.shows("Stopped")
		gone(t, pid)
		w.run("run", "-w", "30", "n", "true").want(0)
		c.typed("fg\n")
		c.shows("lost \"n\"")
		c.typed(askCode)
		c.shows("code=76")
	})
}

// Where no shell could continue it, Ctrl-Z stops neither.
func TestCtrlZWithoutShell(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, cmd := w.newConsole(program, "run", "n", "--", "sh", "-c", `echo up >up; read x; echo "got <$x>"`)
	w.await("up")
	c.typed("\x1a")
	c.shows("^Z")
	c.typed("word\n")
	c.shows("got <word>")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	w.isFree("n")
}

// While it waits, a terminal shows one line that is rewritten and then removed.
func TestWaitingOnTerminal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, end := w.hold("n", "--holder", "the holder")
	c, cmd := w.newConsole(program, "run", "n", "echo", "ran")
	c.shows(`waiting for "n": held by "the holder"`)
	c.shows("\r\x1b[K")
	end()
	c.shows("\r\x1b[K")
	c.shows("ran")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// With no store chosen, a person at a terminal gets the local one and is told.
func TestGuessedStore(t *testing.T) {
	w := &world{t: t, dir: t.TempDir()}
	c, cmd := w.newConsole("sh", "-c", `unset PGMUTEX_URL; HOME="$PWD" XDG_STATE_HOME= exec "$PGM" run n echo "it" ran`)
	c.shows("locks on this machine only")
	c.shows("it ran")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
