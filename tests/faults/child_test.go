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
	"strconv"
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
	DSN, Client, Lock string
	Sessions          bool
}

// child starts a child for a lock.
func (w *world) child(name, lock string) *child {
	w.t.Helper()
	settings, err := json.Marshal(childSettings{w.dsn, name, lock, w.sessions})
	pgtest.Must(w.t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+string(settings))
	cmd.Stderr = w.t.Output()
	in, err := cmd.StdinPipe()
	pgtest.Must(w.t, err)
	out, err := cmd.StdoutPipe()
	pgtest.Must(w.t, err)
	pgtest.Must(w.t, cmd.Start())
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
	timer := time.NewTimer(30 * time.Second)
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
	opts := &pgmutex.Options{HolderID: s.Client, StaleAfter: stale, Heartbeat: heartbeat}
	if s.Sessions {
		opts.StaleAfter, opts.Heartbeat = session, session/12
	}
	var err error
	if c.Client, err = w.open(ctx, s.DSN, opts); err != nil {
		panic(err)
	}
	if c.app, err = pgxpool.New(ctx, s.DSN); err != nil {
		panic(err)
	}
	var h *holding
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
