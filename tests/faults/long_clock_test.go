//go:build faults && long

package faults

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// A fakeClock is a server's clock that can be stepped, by libfaketime.
type fakeClock struct {
	t    *testing.T
	file string
}

// steppable makes a server whose clock can be stepped.
func steppable(t *testing.T) (*pgtest.Server, fakeClock) {
	t.Helper()
	library := faketime(t)
	c := fakeClock{t, pgtest.ReadableFile(t, "")}
	c.step(0)
	s := pgtest.New(t, pgtest.Options{Env: []string{
		"LD_PRELOAD=" + library, "FAKETIME_TIMESTAMP_FILE=" + c.file, "FAKETIME_NO_CACHE=1", "DONT_FAKE_MONOTONIC=1", "FAKETIME_DONT_RESET=1",
	}})
	return s, c
}

// faketime finds the library, or installs it as pgtest does with its programs.
func faketime(t *testing.T) string {
	t.Helper()
	for range 2 {
		found, err := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
		pgtest.Must(t, err)
		if len(found) > 0 {
			return found[0]
		}
		out, err := exec.CommandContext(t.Context(), "apt-get", "install", "-q", "-y", "--no-install-recommends", "libfaketime").CombinedOutput()
		if err != nil {
			t.Fatalf("this test needs libfaketime (apt-get install libfaketime): %v\n%s", err, out)
		}
	}
	t.Fatal("libfaketime is installed and not found")
	return ""
}

// step sets how far the server's clock is from the host's.
func (c fakeClock) step(d time.Duration) {
	c.t.Helper()
	next := c.file + ".next"
	pgtest.Must(c.t, os.WriteFile(next, []byte(fmt.Sprintf("%+.3f\n", d.Seconds())), 0o600))
	pgtest.Must(c.t, os.Chmod(next, 0o644))
	pgtest.Must(c.t, os.Rename(next, c.file))
}

// now is the offset that the server shows.
func (c fakeClock) offset(w *world) time.Duration {
	c.t.Helper()
	at := pgtest.One[time.Time](c.t, w.dsn, "SELECT clock_timestamp()")
	return time.Until(at)
}

func (c fakeClock) stepped(w *world, d time.Duration) {
	c.t.Helper()
	c.step(d)
	w.history.add(call{Op: "fault", Outcome: "clock " + d.String(), Start: now()})
	pgtest.WaitFor(c.t, "the server's clock", func() bool { return (c.offset(w) - d).Abs() < time.Second })
}

const clockStale = 6 * time.Second // a hundredth of the default, with a margin of 2 s

func clockTimes(o *pgmutex.Options) { o.StaleAfter, o.Heartbeat = clockStale, 200*time.Millisecond }

// Row 34: the server's clock jumps ahead under a holder that is cut off, and others
// try without waiting. Inside of the margin, a third of StaleAfter, the holder has
// ended before; beyond it need not have, as documented.
func TestN34ServerClockAhead(t *testing.T) {
	for name, c := range map[string]struct {
		step   time.Duration
		inside bool
	}{"inside the margin": {clockStale/3 - 500*time.Millisecond, true}, "beyond it": {clockStale/3 + 2*time.Second, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, clock := steppable(t)
			w := newWorld(t, server)
			holder, rival := w.client("holder", clockTimes), w.client("rival", clockTimes)
			h := holder.must("job")
			pass(t.Context(), time.Second)
			clock.stepped(w, c.step)
			pgtest.Must(t, h.Heartbeat(t.Context())) // a live one writes the new time
			if _, err := rival.take(t.Context(), "job", false); !errors.Is(err, pgmutex.ErrHeld) {
				t.Errorf("under a live holder: %v", err)
			}
			clock.stepped(w, 0)
			pgtest.Must(t, h.Heartbeat(t.Context()))
			holder.proxy.Freeze(freezeBoth)
			clock.stepped(w, c.step)
			var g *holding
			for g == nil {
				g, _ = rival.take(t.Context(), "job", false)
				pass(t.Context(), 20*time.Millisecond)
			}
			if early := h.Held(); early == c.inside {
				t.Errorf("the old holder believes: %v, want %v", early, !c.inside)
			}
			_ = h.look()
			holder.heal()
			if c.inside {
				_ = h.end(t.Context())
				pgtest.Must(t, g.end(t.Context()))
				w.judge(demand{"takeover", "lost"})
				return
			}
			// Both believed, and the tokens order them.
			if g.Token() <= h.Token() {
				t.Errorf("token %d after %d", g.Token(), h.Token())
			}
			pgtest.Must(t, g.end(t.Context()))
			_ = h.end(t.Context())
		})
	}
}

// Row 35: the server's clock is set back an hour over a dead holder. Who has
// watched its heartbeat for the whole of StaleAfter gets in by its own clock.
func TestN35ServerClockBack(t *testing.T) {
	t.Parallel()
	server, clock := steppable(t)
	w := newWorld(t, server)
	holder, waiter := w.client("holder", clockTimes), w.client("waiter", clockTimes)
	h := holder.must("job")
	holder.proxy.Freeze(freezeBoth)
	granted := make(chan *holding, 1)
	began := now()
	go func() {
		g, err := waiter.take(t.Context(), "job", true)
		if err != nil {
			w.violation("waiter: %v", err)
		}
		granted <- g
	}()
	pgtest.WaitFor(t, "the waiter", func() bool {
		return pgtest.One[int64](t, w.dsn, "SELECT count(*) FROM mutex_lock_waiter") == 1
	})
	clock.stepped(w, -time.Hour)
	late := w.client("late", clockTimes)
	lateGrant := async(func() (*holding, error) { return late.take(t.Context(), "job", true) }) // it looks after the step
	g := <-granted
	if g == nil {
		return
	}
	t.Logf("the waiter got in after %v", g.began-began)
	if after := g.began - began; after > clockStale+2*slack {
		t.Errorf("the waiter got in after %v", after)
	}
	holder.heal()
	_ = h.end(t.Context())
	pgtest.Must(t, g.end(t.Context()))
	if err := <-lateGrant; !errors.Is(err, errGranted) {
		t.Errorf("who came after the step: %v", err)
	}
	w.judge(demand{"takeover", "lost"})
}

// Row 36: the server's clock jumps an hour ahead while the holder is cut off and a
// waiter is there since before: the waiter goes by its own clock.
func TestN36ServerClockAheadUnderAWaiter(t *testing.T) {
	t.Parallel()
	server, clock := steppable(t)
	w := newWorld(t, server)
	holder, waiter := w.client("holder", clockTimes), w.client("waiter", clockTimes)
	h := holder.must("job")
	holder.proxy.Freeze(freezeBoth)
	began := now()
	granted := make(chan *holding, 1)
	go func() {
		g, err := waiter.take(t.Context(), "job", true)
		if err != nil {
			w.violation("waiter: %v", err)
		}
		granted <- g
	}()
	pgtest.WaitFor(t, "the waiter", func() bool {
		return pgtest.One[int64](t, w.dsn, "SELECT count(*) FROM mutex_lock_waiter") == 1
	})
	clock.stepped(w, time.Hour)
	h.lostWithin(clockStale/3*2 + slack)
	g := <-granted
	if g == nil {
		return
	}
	t.Logf("the waiter got in after %v", g.began-began)
	if g.began-began < clockStale-time.Second {
		t.Errorf("the waiter got in after %v", g.began-began)
	}
	holder.heal()
	_ = h.end(t.Context())
	pgtest.Must(t, g.end(t.Context()))
	w.judge(demand{"takeover", "lost"})
}
