package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// A child is a holder in a process of its own: this test binary, started again.
// It reads commands from its standard input, one a line, and writes its history
// to its standard output; its answers are calls with the Op "reply".
type child struct {
	t       testing.TB
	w       *world
	cmd     *exec.Cmd
	in      io.Writer
	replies chan string
	ended   chan struct{}
}

const childEnv = "PGMUTEX_FAULTS_CHILD"

type childSettings struct {
	DSN, Client, Lock     string
	Sessions              bool
	StaleAfter, Heartbeat time.Duration

	within []string              // the command that starts it, if any
	env    []string              // more of it
	start  func(*exec.Cmd) error // instead of Start
}

// child starts a child for a lock.
func (w *world) child(name, lock string, change ...func(*childSettings)) *child {
	w.t.Helper()
	s := childSettings{
		DSN: w.dsn, Client: name, Lock: lock, Sessions: w.sessions, StaleAfter: stale, Heartbeat: heartbeat,
		start: (*exec.Cmd).Start,
	}
	if w.sessions {
		s.StaleAfter, s.Heartbeat = session, session/12
	}
	for _, f := range change {
		f(&s)
	}
	settings, err := json.Marshal(s)
	pgtest.Must(w.t, err)
	argv := append(s.within, os.Args[0])
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(append(os.Environ(), s.env...), childEnv+"="+string(settings))
	cmd.Stderr = w.t.Output()
	in, err := cmd.StdinPipe()
	pgtest.Must(w.t, err)
	out, err := cmd.StdoutPipe()
	pgtest.Must(w.t, err)
	pgtest.Must(w.t, s.start(cmd))
	c := &child{t: w.t, w: w, cmd: cmd, in: in, replies: make(chan string, 100), ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		c.read(out)
		_ = cmd.Wait() // the signals of these tests are errors to it
	}()
	w.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = cmd.Process.Kill()
		<-c.ended
	})
	return c
}

func (c *child) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var rec call
		if json.Unmarshal(lines.Bytes(), &rec) != nil {
			continue // what the testing package prints
		}
		switch rec.Op {
		case "reply":
			c.replies <- rec.Outcome
		case "violation":
			c.w.violation("%s", rec.Err)
		default:
			c.w.history.add(rec)
		}
	}
}

// send queues a command; a child that is stopped finds it when it goes on.
func (c *child) send(command string) {
	c.t.Helper()
	_, err := fmt.Fprintln(c.in, command)
	pgtest.Must(c.t, err)
}

func (c *child) reply() string {
	c.t.Helper()
	return c.replyWithin(30 * time.Second)
}

func (c *child) replyWithin(d time.Duration) string {
	c.t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case r := <-c.replies:
		return r
	case <-timer.C:
		c.t.Fatal("the child does not answer")
	}
	return ""
}

func (c *child) ask(command, want string) {
	c.t.Helper()
	c.send(command)
	if got := c.reply(); got != want {
		c.t.Errorf("%s: the child says %q, want %q", command, got, want)
	}
}

// quit ends the child and waits for that.
func (c *child) quit() {
	c.t.Helper()
	c.send("exit")
	<-c.ended
}

func (c *child) signal(s syscall.Signal) {
	c.t.Helper()
	pgtest.Must(c.t, c.cmd.Process.Signal(s))
}

// childMain is main in a child; false in a test process.
func childMain() bool {
	text := os.Getenv(childEnv)
	if text == "" {
		return false
	}
	var s childSettings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		panic(err)
	}
	ctx := context.Background()
	w := &world{history: &history{out: bufio.NewWriter(os.Stdout), each: true, count: map[string]int{}}, dsn: s.DSN, sessions: s.Sessions}
	c := &client{w: w, name: s.Client}
	opts := &pgmutex.Options{HolderID: s.Client, StaleAfter: s.StaleAfter, Heartbeat: s.Heartbeat}
	var err error
	if c.Client, err = w.open(ctx, s.DSN, opts); err != nil {
		panic(err)
	}
	if c.app, err = pgxpool.New(ctx, s.DSN); err != nil {
		panic(err)
	}
	var h *holding
	var unseen chan time.Duration
	var pauses lateness
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		reply := func(outcome string) { w.history.add(call{Op: "reply", Outcome: outcome, Start: now()}) }
		switch commands.Text() {
		case "take":
			if h, err = c.take(ctx, s.Lock, true); err != nil {
				reply(err.Error())
				continue
			}
			reply("taken")
		case "take unseen": // nobody looks at it: its end is told by the library alone
			hold, err := c.Acquire(ctx, s.Lock+"-unseen")
			if err != nil {
				reply(err.Error())
				continue
			}
			unseen = make(chan time.Duration, 1)
			context.AfterFunc(hold.Context(), func() { unseen <- late(hold, s.StaleAfter) })
			reply("taken")
		case "told": // how long after its deadline that one had ended
			reply((<-unseen).String())
		case "clock":
			reply(strconv.FormatInt(time.Now().UnixNano(), 10))
		case "spin":
			for range 8 {
				go spin()
			}
			go pauses.measure()
			reply("spinning")
		case "starved": // how many collections there were, and how late a bare timer is at worst
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			reply(fmt.Sprint(m.NumGC, " ", pauses.longest.Load()))
		case "held":
			reply(strconv.FormatBool(h.look()))
		case "token":
			reply(strconv.FormatInt(h.Token(), 10))
		case "write":
			reply(h.write(ctx, nil))
		case "fenced write": // to something that knows no lock but compares tokens
			tag, err := c.app.Exec(ctx, `UPDATE fault_counter SET n = $2 WHERE name = $1 AND n <= $2`, "resource", h.Token())
			reply(fmt.Sprint(tag.RowsAffected(), err))
		case "end":
			if err := h.end(ctx); err != nil {
				reply("lost")
				continue
			}
			reply("released")
		case "do": // work that ends with the context, as programs do it
			work, cancel := signal.NotifyContext(ctx, syscall.SIGTERM)
			err := c.Do(work, s.Lock, func(ctx context.Context) error {
				reply("working")
				<-ctx.Done()
				return nil
			})
			cancel()
			reply(fmt.Sprint("done ", err))
		case "panic":
			_ = c.Do(ctx, s.Lock, func(context.Context) error {
				reply("working")
				panic("on purpose")
			})
		case "exit":
			os.Exit(0)
		}
		for _, line := range w.told {
			w.history.add(call{Op: "violation", Err: line})
		}
		w.told = nil
	}
	return true
}

// late is how long ago the deadline of a hold was, when it has just been told of its
// end. StaleAt stays where it was then, a third of StaleAfter later.
func late(h *pgmutex.Hold, staleAfter time.Duration) time.Duration {
	told := now()
	for {
		at := now()
		left := time.Until(h.StaleAt())
		if now()-at < time.Millisecond { // nothing came between the two clocks
			return told - (at + left - staleAfter/3)
		}
	}
}

// A lateness is how late a goroutine wakes up that has nothing to do with us.
type lateness struct{ longest atomic.Int64 }

func (l *lateness) measure() {
	const nap = 10 * time.Millisecond
	for {
		at := now()
		time.Sleep(nap) //nolint:forbidigo // what is measured
		l.longest.Store(max(l.longest.Load(), int64(now()-at-nap)))
	}
}

// spin wants the processor all the time, and makes garbage.
func spin() {
	kept := make([][]byte, 1000)
	for i := 0; ; i++ {
		kept[i%len(kept)] = make([]byte, 1<<10)
	}
}
