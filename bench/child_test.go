//go:build bench

package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// A child is another process with a party of one contestant. It does one command
// after the other, each answered by one line, and ends with its input.
type child struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// orders are what a child is told first.
type orders struct {
	Contestant string
	Stores     stores
	Heartbeat  time.Duration
}

const childVariable = "PGMUTEX_BENCH_CHILD"

func TestMain(m *testing.M) {
	if text := os.Getenv(childVariable); text != "" {
		if err := serve(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// newChild starts a process; its first answer is "ready".
func newChild(t *testing.T, c contestant, s stores, heartbeat time.Duration) *child {
	t.Helper()
	text, err := json.Marshal(orders{c.name, s, heartbeat})
	pgtest.Must(t, err)
	self, err := os.Executable()
	pgtest.Must(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	pgtest.Must(t, err)
	out, err := cmd.StdoutPipe()
	pgtest.Must(t, err)
	pgtest.Must(t, cmd.Start())
	return &child{t, cmd, in, bufio.NewReader(out)}
}

func (c *child) tell(format string, args ...any) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.in, format+"\n", args...); err != nil {
		c.t.Fatal(err)
	}
}

// answer reads the child's next line, which has to begin with a word, and the
// numbers that follow it.
func (c *child) answer(word string) []int64 {
	c.t.Helper()
	line, err := c.out.ReadString('\n')
	if err != nil {
		c.t.Fatalf("a child's %q: %v", word, err)
	}
	fields := strings.Fields(line)
	if len(fields) == 0 || fields[0] != word {
		c.t.Fatalf("a child answers %q, want %q", line, word)
	}
	var numbers []int64
	for _, f := range fields[1:] {
		var n int64
		if _, err := fmt.Sscan(f, &n); err != nil {
			c.t.Fatalf("a child answers %q", line)
		}
		numbers = append(numbers, n)
	}
	return numbers
}

func (c *child) ask(word, format string, args ...any) []int64 {
	c.t.Helper()
	c.tell(format, args...)
	return c.answer(word)
}

// end kills: whatever it holds is given up with it.
func (c *child) end() {
	c.cmd.Process.Kill()
	c.in.Close()
	c.cmd.Wait()
}

// serve is the child's side.
func serve(text string) error {
	var o orders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	ctx := context.Background()
	p, err := find(o.Contestant).open(ctx, o.Stores, o.Heartbeat)
	if err != nil {
		return err
	}
	w := &worker{party: p}
	fmt.Println("ready")
	commands := make(chan string)
	go func() {
		for input := bufio.NewScanner(os.Stdin); input.Scan(); {
			commands <- input.Text()
		}
		os.Exit(0) // the parent has gone, and a command may wait for ever
	}()
	for command := range commands {
		if err := w.do(ctx, strings.Fields(command)); err != nil {
			return fmt.Errorf("%s: %s: %w", o.Contestant, command, err)
		}
	}
	return nil
}

// A worker carries out a child's commands.
type worker struct {
	party
	held    hold
	all     []hold
	granted atomic.Int64
	last    atomic.Int64 // when, in nanoseconds
	failed  atomic.Pointer[error]
}

func (w *worker) do(ctx context.Context, command []string) (err error) {
	switch command[0] {
	case "lock":
		fmt.Println("waiting")
		if w.held, err = w.lock(ctx, command[1]); err == nil {
			fmt.Println("granted", time.Now().UnixNano())
		}
	case "unlock":
		if err = w.held.unlock(ctx); err == nil {
			fmt.Println("unlocked")
		}
	case "queue": // NAME N SPREAD: so many begin to wait within that time, and each gives the lock back at once
		for range count(command[2]) {
			go func() {
				// Else those who poll would all ask at the same moments.
				time.Sleep(rand.N(time.Duration(count(command[3]))))
				h, err := w.lock(ctx, command[1])
				if err == nil {
					w.last.Store(time.Now().UnixNano())
					err = h.unlock(ctx)
				}
				if err != nil {
					w.failed.Store(&err)
					return
				}
				w.granted.Add(1)
			}()
		}
		fmt.Println("queued")
	case "progress":
		if err := w.failed.Load(); err != nil {
			return *err
		}
		fmt.Println("progress", w.granted.Load(), w.last.Load())
	case "take": // NAME N: so many locks of different names
		start := time.Now()
		if err = w.take(ctx, command[1], count(command[2])); err == nil {
			fmt.Println("taken", time.Since(start).Nanoseconds())
		}
	case "renew": // all of them, where the library leaves that to its caller
		if w.all[0].renew != nil {
			for _, h := range w.all {
				if err = h.renew(ctx); err != nil {
					return err
				}
			}
		}
		fmt.Println("renewed")
	case "stats":
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		fmt.Println("stats", m.HeapAlloc+m.StackInuse, runtime.NumGoroutine())
	}
	return err
}

func (w *worker) take(ctx context.Context, name string, n int) error {
	w.all = make([]hold, n)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, 64) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				h, err := w.lock(ctx, fmt.Sprint(name, i))
				if err != nil {
					w.failed.Store(&err)
					return
				}
				w.all[i] = h
			}
		})
	}
	wg.Wait()
	if err := w.failed.Load(); err != nil {
		return *err
	}
	return nil
}

func count(s string) (n int) {
	fmt.Sscan(s, &n)
	return n
}
