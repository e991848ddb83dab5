package main_test

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/pgmutex/pgmutex/internal/faultconn"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// On a terminal one is asked before somebody's hold is ended, and is shown whose.
func TestReleaseAsks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, _ := w.hold("n", "--stale", "6s", "--holder", "victim")
	for _, answer := range []string{"\n", "no\n", "\x04"} {
		c, cmd := w.newConsole(program, "release", "n", "--force")
		c.shows("n is held by victim on ")
		c.shows("End that hold? [y/N]")
		c.typed(answer)
		_ = cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 1 {
			t.Errorf("answer %q: exit code %d", answer, code)
		}
	}
	if len(w.holders("n")) != 1 {
		t.Fatal("the hold was ended")
	}
	c, cmd := w.newConsole(program, "release", "n", "--force")
	c.shows("[y/N]")
	c.typed("y\n")
	c.shows(`asked "victim"`)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	p.want(76)
	// With --yes, and where nobody can be asked, there is no question.
	_, end := w.hold("m", "--stale", "6s")
	c, cmd = w.newConsole(program, "release", "m", "--force", "--yes")
	c.shows("asked")
	_ = cmd.Wait()
	if strings.Contains(c.text(), "[y/N]") {
		t.Error("asked in spite of --yes")
	}
	end()
}

// What changes hands while the question stands is not touched.
func TestReleaseOfNextHolder(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"--force", "--now"} {
		w := newWorld(t)
		_, end := w.hold("n", "--holder", "first")
		c, cmd := w.newConsole(program, "release", "n", "--force", how)
		c.shows("held by first")
		end()
		next := w.start("run", "--holder", "second", "n", "--", "sh", "-c", `echo up >up; while [ ! -e end ]; do sleep 0.02; done`)
		w.await("up")
		c.typed("y\n")
		c.shows("has changed hands since; nothing was done")
		_ = cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 75 {
			t.Errorf("exit code %d", code)
		}
		w.run("run", "-n", "n", "true").want(75).says("second")
		next.signal(15)
		next.want(143)
		// And when nobody holds it any more:
		_, end = w.hold("m")
		c, cmd = w.newConsole(program, "release", "m", "--force", how)
		c.shows("[y/N]")
		end()
		c.typed("y\n")
		c.shows("nobody holds")
		_ = cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 1 {
			t.Errorf("exit code %d", code)
		}
	}
}

// Silence is told, the own and that of a holder one waits for, and its end, and
// not to those who asked for quiet.
func TestAlertsAreTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	proxy := faultconn.New(t, pgtest.Shared(t).Addr())
	far := *w
	far.dsn = proxy.DSN(w.dsn)
	holder := far.start("run", "--stale", "60s", "--heartbeat", "200ms", "--alert", "600ms", "--holder", "far", "n", "--", "sh", "-c",
		`echo up >up; while [ ! -e end ]; do sleep 0.02; done`)
	w.await("up")
	waiter := w.start("run", "--stale", "60s", "--heartbeat", "200ms", "--alert", "600ms", "n", "true")
	quiet := w.start("run", "-q", "--stale", "60s", "--heartbeat", "200ms", "--alert", "600ms", "n", "true")
	pgtest.WaitFor(t, "the wait to be told", func() bool { return strings.Contains(waiter.stderr(), "waiting for") })
	proxy.Freeze(faultconn.Both)
	pgtest.WaitFor(t, "the holder's silence to be told", func() bool {
		return strings.Contains(waiter.stderr(), `its holder "far" has been silent for`)
	})
	pgtest.WaitFor(t, "the own silence to be told", func() bool {
		return strings.Contains(holder.stderr(), "no heartbeat has been confirmed for")
	})
	proxy.Thaw(faultconn.Both)
	pgtest.WaitFor(t, "the end of the own silence to be told", func() bool {
		return strings.Contains(holder.stderr(), "heartbeats are confirmed again")
	})
	pgtest.WaitFor(t, "the end of the holder's silence to be told", func() bool {
		return strings.Contains(waiter.stderr(), `"far" is no longer silent`)
	})
	if err := os.WriteFile(w.file("end"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	holder.want(0)
	waiter.want(0)
	quiet.want(0).silent()
	if n := strings.Count(waiter.stderr(), "silent for"); n != 1 {
		t.Errorf("%d alerts: %s", n, waiter.stderr())
	}
}

// On a terminal the list is written over the last one, and follows what happens.
func TestWatchOnTerminal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, cmd := w.newConsole(program, "list", "--watch", "--every", "0.1")
	c.shows("0 held, every 100ms")
	_, end := w.hold("job", "--holder", "somebody")
	c.shows("1 held")
	c.shows("somebody")
	end()
	c.shows("0 held")
	c.typed("\x03")
	_ = cmd.Wait()
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGINT {
		t.Errorf("Ctrl-C ended it with %v", cmd.ProcessState)
	}
}
