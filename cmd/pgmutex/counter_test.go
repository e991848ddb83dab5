package main_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// countArg makes the test binary the command that is run under the lock: it counts
// by one and ends, before there is any test; see TestMain. Its further arguments are a
// directory, the id of the run, and how long to think.
const countArg = "count-by-one"

func countIfAsked() {
	if len(os.Args) != 5 || os.Args[1] != countArg {
		return
	}
	if err := countByOne(os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// The files of a counter, in a directory of its own.
const (
	countFile    = "count"    // one line for each increment, replaced as a whole
	insideFile   = "inside"   // locked while a command runs
	overlapsFile = "overlaps" // the commands that found another one running
	doneFile     = "done"     // the runs that counted, by their own account
	beganFile    = "began-"   // + id: the command's process
)

// An increment is a line of the counter. It names its predecessor, so that it
// shows in the file what its writer had read.
type increment struct {
	number     int
	id, before string
	token      uint64
}

func (i increment) String() string {
	return fmt.Sprintf("%d %s after %s by token %d", i.number, i.id, i.before, i.token)
}

// countByOne reads, thinks, and writes what it had read and one line more: whoever
// does that at the same time is forgotten. Killed at any moment, it has counted or
// has not.
func countByOne(dir, id, think string) error {
	pause, err := time.ParseDuration(think)
	if err != nil {
		return err
	}
	token, err := strconv.ParseUint(os.Getenv("PGMUTEX_TOKEN"), 10, 64)
	if err != nil {
		return err
	}
	// This lock protects nothing: it is asked once and tells of another process.
	// It is given up by the death of its holder, and by nothing else.
	inside, err := os.OpenFile(filepath.Join(dir, insideFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(inside.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		if err := appendLine(filepath.Join(dir, overlapsFile), id); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	if err := appendLine(filepath.Join(dir, beganFile+id), strconv.Itoa(os.Getpid())); err != nil {
		return err
	}

	file := filepath.Join(dir, countFile)
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	seen, err := parseCount(string(text))
	if err != nil {
		return err
	}
	mine := increment{number: 1, id: id, before: "nobody", token: token}
	if len(seen) > 0 {
		last := seen[len(seen)-1]
		mine.number, mine.before = last.number+1, last.id
	}
	<-time.After(pause)
	next := file + "." + id
	if err := os.WriteFile(next, fmt.Appendln(text, mine), 0o600); err != nil {
		return err
	}
	if err := os.Rename(next, file); err != nil {
		return err
	}
	return appendLine(filepath.Join(dir, doneFile), id)
}

// appendLine adds a line in one write, to which others do not come in between.
func appendLine(file, line string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Close())
}

func parseCount(text string) ([]increment, error) {
	var all []increment
	for line := range strings.Lines(text) {
		var i increment
		if _, err := fmt.Sscanf(line, "%d %s after %s by token %d\n", &i.number, &i.id, &i.before, &i.token); err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		all = append(all, i)
	}
	return all, nil
}

// An unsafe counter under "run", from 8 processes at a time, counts exactly on
// every store, also when every tenth of them is killed at a random moment.
func TestCounterIsExact(t *testing.T) {
	t.Parallel()
	direct := func(t *testing.T) *world { return newWorld(t) }
	pooled := func(t *testing.T) *world {
		w := newWorld(t)
		w.dsn = pgtest.NewBouncer(t, pgtest.Shared(t), "transaction", pgtest.BouncerOptions{}).DSN(w.dsn)
		return w
	}
	local := func(t *testing.T) *world {
		w := &world{t: t, dir: t.TempDir()}
		w.dsn = "local:" + w.file("locks.db")
		return w
	}
	runs, killed := 5, 8
	if testing.Short() {
		runs, killed = 3, 4
	}
	var all sync.WaitGroup
	for name, where := range map[string]func(*testing.T) *world{
		"PostgreSQL": direct, "pgbouncer": pooled, "local": local,
	} {
		// At once, however few tests may run in parallel: they wait most of the time.
		all.Go(func() {
			t.Run(name, func(t *testing.T) {
				t.Run("undisturbed", func(t *testing.T) {
					newCounter(t, where(t)).count(runs, 0)
				})
				t.Run("every tenth killed", func(t *testing.T) {
					// A hold whose wrapper was killed goes on for as long as --stale.
					newCounter(t, where(t), "--stale", "2s").count(killed, 10)
				})
			})
		})
	}
	all.Wait()
}

// counter is one count and everything that is known about its runs.
type counter struct {
	t     *testing.T
	w     *world
	self  string // the test binary
	flags []string
	seed  uint64

	mu   sync.Mutex
	runs []*countRun
}

// countRun is one start of the wrapper.
type countRun struct {
	id     string
	killed string // how, empty if it was not
	state  *os.ProcessState
	said   string
}

func newCounter(t *testing.T, w *world, flags ...string) *counter {
	t.Helper()
	self, err := os.Executable()
	pgtest.Must(t, err)
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("PGMUTEX_TEST_SEED"); s != "" {
		seed, err = strconv.ParseUint(s, 10, 64)
		pgtest.Must(t, err)
	}
	return &counter{t: t, w: w, self: self, flags: flags, seed: seed}
}

// count counts with 8 workers until each has counted as often as it shall, and
// checks the result. One of every so many of a worker's runs is killed and does
// not count among those; 0 is none.
func (c *counter) count(each, every int) {
	c.t.Helper()
	const workers = 8
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			random := rand.New(rand.NewPCG(c.seed, uint64(i)))
			for n, good := 0, 0; good < each && !c.t.Failed(); n++ {
				r := &countRun{id: fmt.Sprintf("%d.%d", i, n)}
				kill := every > 0 && (n+i)%every == every-1
				if err := c.once(r, kill, random); err != nil {
					c.t.Errorf("run %s: %v", r.id, err)
					return
				}
				if r.state.ExitCode() == 0 && !kill {
					good++
				}
			}
		})
	}
	all.Wait()
	c.check(workers*each, every > 0)
}

// once runs the command once, to its end. An error is not of the command.
func (c *counter) once(r *countRun, kill bool, random *rand.Rand) error {
	// Always as many draws, so that a seed means the same to each run.
	think := time.Duration(random.IntN(5000)) * time.Microsecond
	plan := strike{
		begun: random.IntN(3) > 0,
		after: time.Duration(random.IntN(25000)) * time.Microsecond,
		whom:  []string{"wrapper", "wrapper and command", "wrapper and watchdog"}[random.IntN(3)],
	}
	slow := random.IntN(3) == 0
	switch {
	case kill && plan.begun && slow:
		think = 3 * time.Second // beyond --stale: it meets the next one, should it survive
	case kill:
		think *= 4 // more of them die while they think
	}
	if !plan.begun {
		plan.after *= 16
	}

	said, err := os.Create(c.w.file("said-" + r.id)) // a pipe would have to be waited for
	if err != nil {
		return err
	}
	defer said.Close()
	args := append([]string{"run", "-q"}, c.flags...)
	cmd := exec.Command(program, append(args, "counter", "--", c.self, countArg, c.w.dir, r.id, think.String())...)
	cmd.Env = append(os.Environ(), "PGMUTEX_URL="+c.w.dsn)
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		return err
	}
	c.mu.Lock()
	c.runs = append(c.runs, r)
	c.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait() // its state says it all
	}()
	if kill {
		c.strike(cmd.Process, plan, r, done)
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
		err = fmt.Errorf("has not ended within %v", patience)
		_ = cmd.Process.Kill()
		<-done
	}
	r.state, r.said = cmd.ProcessState, contents(said.Name())
	return err
}

// A strike is how a run is killed: so long after its start, or after its command
// has begun.
type strike struct {
	begun bool
	after time.Duration
	whom  string
}

// strike kills a run, unless it has ended before.
func (c *counter) strike(wrapper *os.Process, plan strike, r *countRun, done <-chan struct{}) {
	if plan.begun {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for late := time.After(patience); c.command(r.id) == 0; {
			select {
			case <-tick.C:
			case <-done:
				return
			case <-late:
				return // once says so
			}
		}
	}
	select {
	case <-done:
		return
	case <-time.After(plan.after):
	}
	r.killed = plan.whom
	switch plan.whom {
	case "wrapper and command":
		_ = wrapper.Kill()
		if pid := c.command(r.id); pid != 0 {
			_ = syscall.Kill(-pid, syscall.SIGKILL)
		}
	case "wrapper and watchdog":
		// The watchdog first stands still, so that it does nothing for the
		// command: its parent's death has to do.
		dog := 0
		if isLinux() {
			dog = watchdogBelow(wrapper.Pid)
		}
		if dog != 0 {
			_ = syscall.Kill(dog, syscall.SIGSTOP)
		}
		_ = wrapper.Kill()
		if dog != 0 {
			_ = syscall.Kill(dog, syscall.SIGKILL)
		}
	default:
		_ = wrapper.Kill()
	}
}

// command returns the process id of a run's command, 0 if it has not begun.
func (c *counter) command(id string) int {
	line, whole := strings.CutSuffix(c.w.read(beganFile+id), "\n")
	if !whole {
		return 0
	}
	pid, _ := strconv.Atoi(line)
	return pid
}

// watchdogBelow is watchdogOf for when there is no time for ps.
func watchdogBelow(wrapper int) int {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", wrapper))
	for _, list := range lists {
		for _, child := range strings.Fields(contents(list)) {
			if strings.HasPrefix(contents("/proc/"+child+"/cmdline"), "lock-watchdog") {
				pid, _ := strconv.Atoi(child)
				return pid
			}
		}
	}
	return 0
}

// check says whether the count is what the runs make of it: at least so many, and
// just those that counted.
func (c *counter) check(least int, killing bool) {
	t := c.t
	t.Helper()
	text := c.w.read(countFile)
	done := strings.Fields(c.w.read(doneFile))
	counted, err := parseCount(text)
	if err != nil {
		t.Errorf("the counter's file is broken: %v", err)
	}

	// The chain: each has read what the one before it wrote, and is a later holder.
	places := map[string]int{}
	last := increment{id: "nobody"}
	for _, i := range counted {
		if i.number != last.number+1 || i.before != last.id {
			t.Errorf("%q does not follow %q", i, last)
		}
		if i.token <= last.token {
			t.Errorf("%q has no higher token than %q", i, last)
		}
		places[i.id]++
		last = i
	}
	for id, n := range places {
		if n != 1 {
			t.Errorf("run %s counted %d times", id, n)
		}
	}
	if overlaps := c.w.read(overlapsFile); overlaps != "" {
		t.Errorf("commands that ran beside another one: %q", strings.Fields(overlaps))
	}
	for _, id := range done {
		if places[id] == 0 {
			t.Errorf("run %s wrote the counter, and its increment is lost", id)
		}
	}

	succeeded, lost, killed, inside, late := 0, 0, 0, 0, 0
	started := map[string]bool{}
	for _, r := range c.runs {
		started[r.id] = true
		code := r.state.ExitCode()
		switch {
		case code == 0: // also one that was to be killed and was faster
			if succeeded++; places[r.id] != 1 {
				t.Errorf("run %s ended with 0 and is not counted", r.id)
			}
			if !slices.Contains(done, r.id) {
				t.Errorf("run %s ended with 0 and its command did not come to its end", r.id)
			}
		case r.killed != "" && r.state.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL:
			killed++
			if c.command(r.id) != 0 {
				inside++
			}
			if places[r.id] == 1 {
				late++
			}
		case killing && code == 76:
			// The host was too busy for the heartbeats of a short --stale. It may
			// have counted or not, as if it had been killed.
			lost++
		default:
			t.Errorf("run %s: %v: %s", r.id, r.state, r.said)
		}
	}
	for id := range places {
		if !started[id] {
			t.Errorf("run %s is counted and was never started", id)
		}
	}
	if len(counted) < least || !killing && len(counted) != least {
		t.Errorf("the counter is at %d after %d runs, want %d", len(counted), len(c.runs), least)
	}
	t.Logf("%d runs: %d ended well, %d lost the lock, %d were killed (%d after their command had begun, %d counted); the counter is at %d",
		len(c.runs), succeeded, lost, killed, inside, late, len(counted))
	if t.Failed() {
		t.Logf("PGMUTEX_TEST_SEED=%d", c.seed)
		for _, r := range c.runs {
			t.Logf("run %s: killed %q, %v, command %d: %s", r.id, r.killed, r.state, c.command(r.id), r.said)
		}
		t.Logf("the counter:\n%s", text)
	}
}
