//go:build faults

package faults

import (
	"context"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// Row 28: a holder that is stopped until the server has ended its session knows it
// at its first look, and its token is too low for its writes.
func TestAdvisoryRow28FrozenHolder(t *testing.T) {
	t.Parallel()
	w := newSessions(t, nil)
	rival, c := w.client("rival"), w.child("frozen", "job")
	c.ask("take", "taken")
	c.ask("write", "committed")
	c.ask("held", "true")
	c.send("token")
	token, err := strconv.ParseInt(c.reply(), 10, 64)
	pgtest.Must(t, err)
	stopped := now()
	c.signal(syscall.SIGSTOP)
	w.history.add(call{Op: "fault", Outcome: "SIGSTOP", Start: stopped})
	h := rival.must("job")
	t.Logf("the next holder %v after the stop", now()-stopped)
	if early := now() - stopped; early < trusted {
		t.Errorf("taken over after %v", early)
	}
	if got := h.write(t.Context(), nil); got != "committed" {
		t.Errorf("the rival's write: %s", got)
	}
	c.send("held")
	c.send("write")
	c.signal(syscall.SIGCONT)
	if got := c.reply(); got != "false" {
		t.Errorf("first look after the pause: held is %s", got)
	}
	if got := c.reply(); got != "refused" {
		t.Errorf("fenced write after the pause: %s", got)
	}
	if h.Token() <= token {
		t.Errorf("the rival's token is %d after %d", h.Token(), token)
	}
	c.ask("end", "lost")
	if err := h.Heartbeat(t.Context()); err != nil || !h.look() {
		t.Errorf("the rival: %v", err)
	}
	c.quit()
	pgtest.Must(t, h.end(t.Context()))
	w.judge(demand{"write refused", "write committed"})
}

// Row 29: between a look and a write there is always a gap; comparing tokens
// closes it.
func TestAdvisoryRow29FrozenBetweenLookAndWrite(t *testing.T) {
	t.Parallel()
	w := newSessions(t, nil)
	pgtest.Exec(t, w.dsn, "INSERT INTO fault_counter VALUES ('resource', 0)")
	rival, c := w.client("rival"), w.child("frozen", "job")
	c.ask("take", "taken")
	c.ask("fenced write", "1 <nil>")
	c.ask("held", "true")
	c.signal(syscall.SIGSTOP)
	h := rival.must("job")
	if n := pgtest.Exec(t, w.dsn, "UPDATE fault_counter SET n = $1 WHERE name = 'resource' AND n <= $1", h.Token()); n != 1 {
		t.Errorf("the rival's write changed %d rows", n)
	}
	c.send("fenced write")
	c.signal(syscall.SIGCONT)
	if got := c.reply(); got != "0 <nil>" {
		t.Errorf("the late write: %s", got)
	}
	c.ask("end", "lost")
	c.quit()
	pgtest.Must(t, h.end(t.Context()))
	pgtest.Exec(t, w.dsn, "DELETE FROM fault_counter WHERE name = 'resource'")
	w.judge(demand{"acquire granted"})
}

// Row 55: however a process ends, its session ends with it, and whoever waits
// gets in within a second.
func TestAdvisoryRow55ProcessEnds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		begin []string // commands and their replies in turn
		end   func(c *child)
	}{
		{"exit", []string{"take", "taken"}, func(c *child) { c.send("exit") }},
		{"SIGKILL", []string{"take", "taken"}, func(c *child) { c.signal(syscall.SIGKILL) }},
		{"SIGTERM", []string{"do", "working"}, func(c *child) { c.signal(syscall.SIGTERM) }},
		{"panic", nil, func(c *child) { c.ask("panic", "working") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newSessions(t, nil)
			next, p := w.client("next", minutes), w.child("mortal", "job")
			if c.begin != nil {
				p.ask(c.begin[0], c.begin[1])
				if n := w.locked("job"); n != 1 {
					t.Fatalf("locked %d times", n)
				}
			}
			type grant struct {
				h   *holding
				err error
			}
			granted := make(chan grant, 1)
			if c.begin != nil { // somebody waits already
				go func() {
					h, err := next.take(context.WithoutCancel(t.Context()), "job", true)
					granted <- grant{h, err}
				}()
				pgtest.WaitFor(t, "the next one to wait", func() bool {
					st, err := next.Inspect(t.Context(), "job")
					return err == nil && st.Waiters == 1
				})
			}
			ended := now()
			c.end(p)
			if c.begin == nil {
				h, err := next.take(t.Context(), "job", true)
				granted <- grant{h, err}
			}
			g := <-granted
			pgtest.Must(t, g.err)
			after := now() - ended
			t.Logf("free after %v", after)
			if after > slack+time.Second {
				t.Errorf("free after %v", after)
			}
			pgtest.Must(t, g.h.end(t.Context()))
		})
	}
}
