package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// rowsOf returns the cells of the first table in docs/cli.md after a heading.
func rowsOf(t *testing.T, heading string) (head []string, rows [][]string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/cli.md")
	pgtest.Must(t, err)
	_, section, ok := strings.Cut(string(text), "\n"+heading+"\n")
	_, table, found := strings.Cut(section, "\n|")
	if !ok || !found {
		t.Fatalf("no table after %q", heading)
	}
	for line := range strings.Lines("|" + table) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		var cells []string
		for cell := range strings.SplitSeq(strings.Trim(line, "|\n"), "|") {
			cells = append(cells, strings.TrimSpace(cell))
		}
		rows = append(rows, cells)
	}
	return rows[0], rows[2:]
}

// A seat is where a run is watched from: with a terminal and a shell, or without.
type seat interface {
	run(args ...string) (wrapper int)
	send(sig syscall.Signal) // as a key where there is one
	text() string            // what was said
	code() int               // after the end, as a shell has it
}

type bareSeat struct {
	w *world
	p *process
}

func (s *bareSeat) run(args ...string) int {
	s.p = s.w.startWith(func(c *exec.Cmd) { ownGroup(c); s.w.to(c) }, args...)
	return s.p.cmd.Process.Pid
}

func (s *bareSeat) send(sig syscall.Signal) { s.w.t.Helper(); s.p.signal(sig) }
func (s *bareSeat) text() string            { return s.p.stderr() }

func (s *bareSeat) code() int {
	s.p.wait()
	if status := s.p.cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		return 128 + int(status.Signal())
	}
	return s.p.cmd.ProcessState.ExitCode()
}

type ttySeat struct {
	w       *world
	c       *console
	wrapper int
	runs    int
}

func (s *ttySeat) run(args ...string) int {
	s.w.t.Helper()
	if s.c == nil {
		s.c, _ = s.w.newConsole()
	}
	s.runs++
	file := fmt.Sprint("wrapper", s.runs)
	for i, arg := range args {
		args[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
	}
	to := ""
	if s.w.stdout != "" {
		to = " >" + s.w.stdout
	}
	s.c.typed("(echo $BASHPID >" + file + `; exec "$PGM" ` + strings.Join(args, " ") + to + ")\n")
	s.wrapper = s.w.pid(file)
	return s.wrapper
}

func (s *ttySeat) send(sig syscall.Signal) {
	s.w.t.Helper()
	switch sig {
	case syscall.SIGINT:
		s.c.typed("\x03")
	case syscall.SIGQUIT:
		s.c.typed("\x1c")
	case syscall.SIGTSTP:
		s.c.typed("\x1a")
	case syscall.SIGCONT:
		s.c.shows("Stopped") // the shell has seen it
		s.c.typed("fg\n")
	default:
		pgtest.Must(s.w.t, syscall.Kill(s.wrapper, sig))
	}
}

func (s *ttySeat) text() string { return s.c.text() }

var answer = regexp.MustCompile(`code=(\d+)\.`)

func (s *ttySeat) code() int {
	s.w.t.Helper()
	gone(s.w.t, s.wrapper)
	before := len(answer.FindAllString(s.text(), -1))
	s.c.typed("echo co''de=$?.\n")
	var all [][]string
	pgtest.WaitFor(s.w.t, "the exit code", func() bool {
		all = answer.FindAllStringSubmatch(s.text(), -1)
		return len(all) > before
	})
	code, _ := strconv.Atoi(all[before][1])
	return code
}

// Each cell of the table of signals is what happens, without and with a terminal.
func TestSignalTable(t *testing.T) {
	t.Parallel()
	head, rows := rowsOf(t, "### Signals")
	if !slices.Equal(head, []string{"signal", "waiting", "running", "stopping", "lost"}) {
		t.Fatalf("the columns are %q", head)
	}
	shared := newWorld(t)
	for column, phase := range head[1:] {
		cells := map[string]string{}
		for _, row := range rows {
			cells[row[0]] = row[column+1]
		}
		for _, terminal := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,terminal=%t", phase, terminal), func(t *testing.T) {
				t.Parallel()
				sit := func(t *testing.T) (*world, seat) {
					w := &world{t: t, dsn: shared.dsn, dir: t.TempDir()}
					if terminal {
						return w, &ttySeat{w: w}
					}
					return w, &bareSeat{w: w}
				}
				p := player{phase: phase, lock: strings.ReplaceAll(t.Name(), "TestSignalTable/", ""), sit: sit, seen: map[string]string{}}
				if phase == "waiting" {
					p.waiting(t)
				} else {
					p.caught(t)
					p.stopped(t)
					p.killed(t)
				}
				for sig, want := range cells {
					if got := p.seen[sig]; got != want {
						t.Errorf("SIG%s: %q, the table has %q", sig, got, want)
					}
				}
				if len(p.seen) != len(cells) {
					t.Errorf("the table has %d signals, there are %d", len(cells), len(p.seen))
				}
			})
		}
	}
}

// A player does in one phase what the rows of the table are about.
type player struct {
	phase, lock string
	sit         func(*testing.T) (*world, seat)
	seen        map[string]string
}

// caught are the signals that a program can take, those that end a wait first.
var caught = []string{"TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "WINCH", "TSTP", "CONT"}

func number(name string) syscall.Signal { return unix.SignalNum("SIG" + name) }

func (p *player) waiting(t *testing.T) {
	w, s := p.sit(t)
	_, end := w.hold(p.lock)
	said := 0
	begin := func() (wrapper int) {
		t.Helper()
		wrapper = s.run("run", p.lock, "touch", "ran")
		pgtest.WaitFor(t, "the run to wait", func() bool { return strings.Count(s.text(), "waiting for") > said })
		return wrapper
	}
	ends := func(name string, wrapper int) {
		t.Helper()
		if name == "KILL" {
			pgtest.Must(t, syscall.Kill(wrapper, syscall.SIGKILL))
		} else {
			s.send(number(name))
		}
		p.seen[name] = fmt.Sprintf("ends it, %d", s.code())
		if _, same := s.(*ttySeat); same { // one terminal for all runs
			said = strings.Count(s.text(), "waiting for")
		}
	}
	stops := func(name string, wrapper int) {
		t.Helper()
		s.send(number(name))
		pgtest.WaitFor(t, "the waiter to stop", func() bool { return stopped(t, wrapper) })
		p.seen[name] = "stops"
		s.send(syscall.SIGCONT)
		pgtest.WaitFor(t, "the waiter to continue", func() bool { return !stopped(t, wrapper) })
		p.seen["CONT"] = "continues"
	}
	wrapper := begin()
	s.send(syscall.SIGWINCH)
	stops("TSTP", wrapper)
	stops("STOP", wrapper)
	if alive(wrapper) {
		p.seen["WINCH"] = "nothing"
	}
	ends("TERM", wrapper)
	for _, name := range []string{"INT", "HUP", "QUIT", "USR1", "USR2", "KILL"} {
		ends(name, begin())
	}
	end()
	w.free(p.lock)
	if w.read("ran") != "" {
		t.Error("the command of a waiter ran")
	}
}

// noting writes down each signal that it can, and ends when it is told to. It is
// for bash: dash starts programs by vfork, and one that Ctrl-Z meets between that
// and its execution stops for itself, with a shell that waits for it and cannot.
const noting = `for s in TERM INT HUP QUIT USR1 USR2 WINCH CONT; do trap "echo $s >>log" $s; done
	echo $$ >sh; while [ ! -e end ]; do sleep 0.02; done; exit 5`

// begin brings a run into the phase.
func (p *player) begin(t *testing.T, flags ...string) (w *world, s seat, wrapper, command int) {
	t.Helper()
	w, s = p.sit(t)
	lock := p.lock + strings.ReplaceAll(fmt.Sprint(flags), " ", "")
	wrapper = s.run(append(append([]string{"run", "--heartbeat", "100ms"}, flags...), lock, "--", "bash", "-c", noting)...)
	command = w.pid("sh")
	switch p.phase {
	case "stopping":
		pgtest.Must(t, syscall.Kill(wrapper, syscall.SIGTERM))
		w.noted("TERM")
	case "lost":
		w.run("release", lock, "--force").want(0)
		pgtest.WaitFor(t, "the loss to be told", func() bool { return strings.Contains(s.text(), "released by operator") })
		w.noted("TERM")
	}
	return w, s, wrapper, command
}

// noted waits until the command has noted a signal.
func (w *world) noted(name string) {
	w.t.Helper()
	pgtest.WaitFor(w.t, name+" to be noted", func() bool { return w.times(name) > 0 })
}

func (w *world) times(name string) int { return strings.Count(w.read("log"), name+"\n") }

// caught sends the signals that a program can take to one run.
func (p *player) caught(t *testing.T) {
	w, s, wrapper, command := p.begin(t, "--stale=60s", "--kill-after=60s")
	var before map[string]int
	frozen := false
	for _, name := range caught {
		before = map[string]int{name: w.times(name), "WINCH": w.times("WINCH")}
		if name == "CONT" && !frozen {
			pgtest.Must(t, syscall.Kill(wrapper, syscall.SIGCONT)) // a shell has nothing to continue
		} else {
			s.send(number(name))
		}
		if name == "TSTP" {
			// Whether the command goes on shows in what comes next.
			pgtest.Must(t, syscall.Kill(wrapper, syscall.SIGWINCH))
		}
		pgtest.WaitFor(t, "an effect of "+name, func() bool {
			both := stopped(t, wrapper) && stopped(t, command)
			switch {
			case name == "TSTP" && both:
				p.seen[name], frozen = "stops both", true
			case name == "TSTP" && w.times("WINCH") > before["WINCH"]:
				p.seen[name] = "goes on"
			case name == "CONT" && frozen && !stopped(t, wrapper) && !stopped(t, command):
				p.seen[name] = "continues both"
			case name == "TSTP" || name == "CONT" && frozen || w.times(name) == before[name]:
				return false
			default:
				p.seen[name] = "passed on"
			}
			return true
		})
	}
	pgtest.Must(t, os.WriteFile(w.file("end"), nil, 0o600))
	want := map[string]int{"running": 5, "stopping": 5, "lost": 76}[p.phase]
	if code := s.code(); code != want {
		t.Errorf("exit code %d, want %d", code, want)
	}
	for _, name := range []string{"INT", "HUP", "QUIT", "USR1", "USR2"} {
		if n := w.times(name); n != 1 {
			t.Errorf("SIG%s came %d times", name, n)
		}
	}
}

// stopped stops the wrapper in a way that it does not notice.
func (p *player) stopped(t *testing.T) {
	flags := []string{"--stale=4s", "--kill-after=500ms"}
	if p.phase == "lost" {
		flags = []string{"--stale=9s", "--kill-after=4s"} // which begins with the loss
	}
	_, s, wrapper, command := p.begin(t, flags...)
	s.send(syscall.SIGSTOP)
	pgtest.WaitFor(t, "the wrapper to stop", func() bool { return stopped(t, wrapper) })
	// Nothing but the watchdog can end this one.
	gone(t, command)
	if !stopped(t, wrapper) {
		t.Error("the wrapper did not stand still until then")
	}
	s.send(syscall.SIGCONT)
	p.seen["STOP"] = fmt.Sprintf("ended in time, %d", s.code())
}

func (p *player) killed(t *testing.T) {
	_, s, _, command := p.begin(t, "--stale=60s", "--kill-after=60s", "--alert=10s")
	s.send(syscall.SIGKILL)
	gone(t, command)
	p.seen["KILL"] = fmt.Sprintf("all killed, %d", s.code())
}
