//go:build faults && long

package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex/internal/faultconn"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// Row 30: a holder in a process that hardly gets to run: one thread for eight
// goroutines that never stop, a collection for each percent of garbage, and a
// twentieth of a processor. It loses nothing by that, and hears of its end at its
// deadline when it is cut off.
func TestN30StarvedHolder(t *testing.T) {
	for name, fresh := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const staleAfter = 30 * time.Second
			w := fresh(t, nil)
			w.allowed = 0 // nothing ends a session here but its own silence
			proxy := faultconn.New(t, w.server.Addr())
			group := newGroup(t)
			c := w.child("starved", "job", func(s *childSettings) {
				s.DSN, s.StaleAfter, s.Heartbeat = proxy.DSN(w.dsn), staleAfter, 0
				s.env = []string{"GOMAXPROCS=1", "GOGC=1"}
			})
			c.ask("take", "taken")
			c.ask("take unseen", "taken")
			c.ask("spin", "spinning")
			group.add(c)
			w.history.add(call{Op: "fault", Outcome: "starve", Start: now()})
			pass(t.Context(), length(t, 25*time.Second)) // longer than is trusted
			c.ask("held", "true")
			c.ask("write", "committed")

			rival := w.client("rival")
			granted := rival.next("job", 2*staleAfter)
			began := now()
			proxy.Freeze(freezeBoth)
			c.send("told")
			late, err := time.ParseDuration(c.replyWithin(staleAfter))
			pgtest.Must(t, err)
			told := now()
			g := <-granted
			if g == nil {
				return
			}
			t.Logf("the next holder came %v after the cut", g.began-began)
			if after := g.began - began; after > staleAfter+2*slack {
				t.Errorf("the next holder came %v after the cut", after)
			}
			c.ask("held", "false")
			var collections int
			var pause time.Duration // of anything in that process
			c.send("starved")
			_, err = fmt.Sscan(c.replyWithin(staleAfter), &collections, (*int64)(&pause))
			pgtest.Must(t, err)
			throttled := group.throttled()
			t.Logf("told %v after the deadline, %v after the cut; %d collections, %d periods without a processor, a bare timer is %v late at worst",
				late, told-began, collections, throttled, pause)
			if late < 0 || late > pause+slack {
				t.Errorf("told %v after the deadline", late)
			}
			if told > g.began {
				t.Errorf("told %v after the next holder began", told-g.began)
			}
			if collections < 100 || group.there() && throttled == 0 {
				t.Error("vacuous: the holder was not starved")
			}
			group.lift()
			proxy.Thaw(freezeBoth)
			c.ask("end", "lost")
			pgtest.Must(t, g.end(t.Context()))
			c.quit()
			w.judge(demand{"acquire granted", "write committed", "fault"})
		})
	}
}

// next waits for a lock, which has to be free within a time. It sends nil where that
// failed, which has been said then.
func (c *client) next(name string, within time.Duration) <-chan *holding {
	granted := make(chan *holding, 1)
	go func() {
		ctx, cancel := context.WithTimeout(c.w.t.Context(), within)
		defer cancel()
		h, err := c.take(ctx, name, true)
		if err != nil && c.w.t.Context().Err() == nil { // not at the end of a failed test
			c.w.t.Errorf("%s: %v", c.name, err)
		}
		granted <- h
	}()
	return granted
}

// A group is a control group with a twentieth of a processor, of either version, or
// nothing where we may not make one.
type group struct {
	t    *testing.T
	path string
	v2   bool
}

func newGroup(t *testing.T) *group {
	t.Helper()
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Logf("no control groups here, so there is no limit to the processor time: %v", err)
		return &group{t: t}
	}
	name := "pgmutex-" + strconv.Itoa(os.Getpid()) + "-" + filepath.Base(t.Name())
	var refused error
	for line := range strings.Lines(string(text)) {
		// The number of the hierarchy, its controllers, and where we are in it.
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		if f[1] != "" && !strings.Contains(","+f[1]+",", ",cpu,") {
			continue
		}
		// Version 2 passes the controller on to no group beside processes, so ours may
		// have to be further up.
		root := filepath.Join("/sys/fs/cgroup", f[1])
		for dir := filepath.Join(root, f[2]); strings.HasPrefix(dir, root); dir = filepath.Dir(dir) {
			g := &group{t: t, path: filepath.Join(dir, name), v2: f[1] == ""}
			err := g.limit()
			if err == nil {
				return g
			}
			refused = errors.Join(refused, err)
		}
	}
	t.Logf("no control group of ours, so there is no limit to the processor time: %v", refused)
	return &group{t: t}
}

// limit makes the group. Without the controller there is nothing to write to.
func (g *group) limit() error {
	if err := os.Mkdir(g.path, 0o755); err != nil {
		return err
	}
	settings := [][2]string{{"cpu.cfs_period_us", "100000"}, {"cpu.cfs_quota_us", "5000"}}
	if g.v2 {
		settings = [][2]string{{"cpu.max", "5000 100000"}}
	}
	for _, s := range settings {
		if err := g.write(s[0], s[1]); err != nil {
			return errors.Join(err, os.Remove(g.path))
		}
	}
	g.t.Cleanup(func() { // after the child's, which ends it
		if err := os.Remove(g.path); err != nil {
			g.t.Error(err)
		}
	})
	return nil
}

func (g *group) write(file, text string) error {
	f, err := os.OpenFile(filepath.Join(g.path, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

func (g *group) there() bool { return g.path != "" }

func (g *group) add(c *child) {
	g.t.Helper()
	if g.there() {
		pgtest.Must(g.t, g.write("cgroup.procs", strconv.Itoa(c.cmd.Process.Pid)))
	}
}

// throttled is in how many periods the limit was reached.
func (g *group) throttled() int {
	g.t.Helper()
	if !g.there() {
		return 0
	}
	text, err := os.ReadFile(filepath.Join(g.path, "cpu.stat"))
	pgtest.Must(g.t, err)
	var n int
	for line := range strings.Lines(string(text)) {
		_, _ = fmt.Sscanf(line, "nr_throttled %d", &n) // the other lines are not it
	}
	return n
}

// lift takes the limit away.
func (g *group) lift() {
	g.t.Helper()
	switch {
	case !g.there():
	case g.v2:
		pgtest.Must(g.t, g.write("cpu.max", "max"))
	default:
		pgtest.Must(g.t, g.write("cpu.cfs_quota_us", "-1"))
	}
}
