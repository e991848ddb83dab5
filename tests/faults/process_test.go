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

// Row 28: a holder that is stopped for longer than StaleAfter knows it at its
// first look, and the guard keeps its work out.
func TestRow28FrozenHolder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	rival, c := w.client("rival"), w.child("frozen", "job")
	c.ask("take", "taken")
	c.ask("write", "committed")
	c.ask("held", "true")
	c.ask("token", "1")
	stopped := now()
	c.signal(syscall.SIGSTOP)
	w.history.add(call{Op: "fault", Outcome: "SIGSTOP", Start: stopped})
	h := rival.must("job")
	if early := now() - stopped; early < stale-2*heartbeat {
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
		t.Errorf("guarded write after the pause: %s", got)
	}
	if h.Token() <= 1 {
		t.Errorf("the rival's token is %d", h.Token())
	}
	c.ask("end", "lost")
	// Neither its heartbeats nor its release, which goes on in the background,
	// have touched the rival's row.
	pass(t.Context(), 4*heartbeat)
	if err := h.Heartbeat(t.Context()); err != nil || !h.look() {
		t.Errorf("the rival: %v", err)
	}
	c.quit()
	pgtest.Must(t, h.end(t.Context()))
	w.judge(demand{"takeover", "write refused"})
}

// Row 29: between a look and a write to somewhere else there is always a gap. It
// is documented, and comparing tokens there closes it.
func TestRow29FrozenBetweenLookAndWrite(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	pgtest.Exec(t, w.dsn, "CREATE TABLE fault_resource AS SELECT 1; INSERT INTO fault_counter VALUES ('resource', 0)")
	rival, c := w.client("rival"), w.child("frozen", "job")
	c.ask("take", "taken")
	c.ask("fenced write", "1 <nil>")
	c.ask("held", "true") // it goes on from here, not looking again
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
	if n := pgtest.One[int64](t, w.dsn, "SELECT n FROM fault_counter WHERE name = 'resource'"); n != h.Token() {
		t.Errorf("the resource has token %d, the holder %d", n, h.Token())
	}
	c.ask("end", "lost")
	c.quit()
	pgtest.Must(t, h.end(t.Context()))
	pgtest.Exec(t, w.dsn, "DELETE FROM fault_counter WHERE name = 'resource'")
	w.judge(demand{"takeover"})
}

// Row 55: however a process ends, the lock becomes free: at once where it could
// say so, after StaleAfter where not.
func TestRow55ProcessEnds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		begin []string // commands and their replies in turn; "" for none
		end   func(c *child)
		quick bool // released by itself
	}{
		{"exit", []string{"take", "taken"}, func(c *child) { c.send("exit") }, false},
		{"SIGKILL", []string{"take", "taken"}, func(c *child) { c.signal(syscall.SIGKILL) }, false},
		{"SIGTERM", []string{"do", "working"}, func(c *child) { c.signal(syscall.SIGTERM) }, true},
		{"panic", nil, func(c *child) { c.ask("panic", "working") }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			next, p := w.client("next"), w.child("mortal", "job")
			if c.begin != nil {
				p.ask(c.begin[0], c.begin[1])
			}
			ended := now()
			c.end(p)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			h, err := next.take(ctx, "job", true)
			pgtest.Must(t, err)
			after := now() - ended
			t.Logf("free after %v", after)
			if c.quick && after > slack || !c.quick && (after < stale-2*heartbeat || after > stale+slack) {
				t.Errorf("free after %v", after)
			}
			pgtest.Must(t, h.end(t.Context()))
		})
	}
}

// Row 37, the engines' part of which is in package lease: a contender obeys the
// holder's promise and not its own setting.
func TestRow37HoldersPromiseCounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	patient := w.client("patient", longTimes)
	hasty := w.client("hasty")
	h := patient.must("job")
	patient.proxy.Freeze(freezeBoth)
	ctx, cancel := context.WithTimeout(t.Context(), 2*stale+slack)
	defer cancel()
	if _, err := hasty.take(ctx, "job", true); err == nil {
		t.Error("a hold of 30 s was taken over")
	}
	if _, err := hasty.take(t.Context(), "job", false); err == nil {
		t.Error("a hold of 30 s was taken over by one try")
	}
	if !h.look() {
		t.Error("the hold is lost within its time")
	}
	patient.heal()
	pgtest.Must(t, h.end(t.Context()))
	w.judge(demand{"acquire held"})
}

// Row 21, with the relay in the place of the packet filter: an idle holder that
// is cut off without a word loses its hold at its own deadline, and the next one
// gets in later.
func TestRow21BlackHole(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	holder, rival := w.client("holder"), w.client("rival")
	for round := range 3 {
		name := "job-" + strconv.Itoa(round)
		h := holder.must(name)
		pass(t.Context(), 3*heartbeat)
		granted := make(chan *holding, 1)
		go func() {
			g, err := rival.take(t.Context(), name, true)
			if err != nil {
				w.violation("rival: %v", err)
			}
			granted <- g
		}()
		deadline := now() + time.Until(h.Deadline())
		cut := now()
		holder.proxy.Freeze(freezeBoth)
		h.lostWithin(fence + slack)
		told := now()
		beat := pgtest.One[time.Time](t, w.dsn, "SELECT last_heartbeat FROM mutex_lock WHERE lock_name = $1", name)
		if !h.Deadline().Before(time.Now().Add(time.Millisecond)) {
			t.Errorf("the deadline is still to come")
		}
		g := <-granted
		if g == nil {
			break
		}
		silence := g.Info().AcquiredAt.Sub(beat)
		t.Logf("cut off %v before the deadline, told %v after it, next holder %v after the last heartbeat",
			deadline-cut, told-deadline, silence)
		if silence < stale || silence > stale+slack {
			t.Errorf("taken over %v after the last heartbeat", silence)
		}
		if told > g.began {
			t.Errorf("told %v after the next holder began", told-g.began)
		}
		if told-deadline > heartbeat+slack {
			t.Errorf("told %v after the deadline", told-deadline)
		}
		// What was on its way all the time arrives now, and changes nothing.
		holder.heal()
		_ = h.end(t.Context())
		pass(t.Context(), 4*heartbeat)
		if err := g.Heartbeat(t.Context()); err != nil {
			t.Errorf("the rival: %v", err)
		}
		if w.rows(name) != 1 {
			t.Error("the rival's row is gone")
		}
		pgtest.Must(t, g.end(t.Context()))
	}
	w.judge(demand{"takeover", "lost"})
}
