package faults

import (
	"cmp"
	"context"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// A demand is what must have happened at least once, or a run was vacuous: an op
// of the history, with or without an outcome.
type demand []string

// judge closes the clients and holds the history against everything that is
// promised. It prints the line that every run ends with.
func (w *world) judge(d demand) {
	t := w.t
	t.Helper()
	for _, c := range w.clients {
		c.shut()
		c.app.Close()
	}
	calls := w.history.all()
	overlaps, reversals, longest := intervals(calls, w.allowed)
	lost, logReversals := w.counted(calls)
	reversals = append(reversals, logReversals...)
	w.mu.Lock()
	told := w.told
	w.mu.Unlock()
	for _, list := range [][]string{overlaps, reversals, lost, told} {
		for i, line := range list {
			if i == 10 {
				t.Errorf("and %d more", len(list)-i)
				break
			}
			t.Error(line)
		}
	}
	if !w.crowd {
		linearizable(t, calls, w.allowed)
	}
	w.clean()
	for _, what := range d {
		if w.history.n(what) == 0 {
			t.Errorf("vacuous: %q never happened", what)
		}
	}
	if t.Failed() {
		t.Logf("history: %s", w.history.path)
	}
	h := w.history
	t.Logf("lost=%d held=%d ended=%d failed=%d writes=%d refused=%d", h.n("lost"), h.n("acquire held"), h.n("acquire ended"),
		h.n("acquire failed"), h.n("write committed"), h.n("write refused"))
	if w.allowed > 0 {
		t.Logf("longest_overlap=%v", longest)
	}
	t.Logf("grants=%d faults=%d takeovers=%d unknown=%d overlaps=%d token_reversals=%d lost_updates=%d",
		h.n("acquire granted"), h.n("fault"), h.n("takeover"), h.n("acquire unknown"), len(overlaps), len(reversals), len(lost))
}

// counted compares the counters with their log and with what clients were told
// (I3).
func (w *world) counted(calls []call) (lost, reversals []string) {
	t := w.t
	t.Helper()
	told, unsure := map[string]int64{}, map[string]int64{}
	for _, c := range calls {
		switch c.Op + " " + c.Outcome {
		case "write committed":
			told[c.Name]++
		case "write unknown":
			unsure[c.Name]++
		}
	}
	for _, name := range pgtest.Column[string](t, w.dsn, "SELECT name FROM fault_counter") {
		n := pgtest.One[int64](t, w.dsn, "SELECT n FROM fault_counter WHERE name = $1", name)
		logged := pgtest.One[int64](t, w.dsn, "SELECT count(*) FROM fault_log WHERE name = $1", name)
		if n != logged {
			lost = append(lost, fmt.Sprintf("%q: %d increments were committed, the counter says %d", name, logged, n))
		}
		if logged < told[name] || logged > told[name]+unsure[name] {
			lost = append(lost, fmt.Sprintf("%q: %d increments are in the log, %d were confirmed, %d are uncertain", name, logged, told[name], unsure[name]))
		}
		for _, line := range pgtest.Column[string](t, w.dsn, `
			SELECT format('increment %s has token %s after %s', n, token, before)
			FROM (SELECT n, token, lag(token) OVER (ORDER BY n, id) AS before FROM fault_log WHERE name = $1) AS l
			WHERE token < before`, name) {
			reversals = append(reversals, fmt.Sprintf("%q: %s", name, line))
		}
	}
	return lost, reversals
}

// clean looks for what clients have left behind (I7).
func (w *world) clean() {
	w.t.Helper()
	const ours = `FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'pgmutex%'`
	pgtest.WaitFor(w.t, "our sessions to end", func() bool {
		return pgtest.One[int64](w.t, w.dsn, "SELECT count(*) "+ours) == 0
	})
	for _, line := range pgtest.Column[string](w.t, w.dsn, `SELECT l.locktype || ' ' || l.mode || ' ' || a.application_name
		FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
		WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
		  AND (l.locktype = 'advisory' OR l.relation = 'mutex_lock'::regclass)`) {
		w.t.Errorf("a lock was left behind: %s", line)
	}
	// What is left of clients that died is stale by itself.
	pgtest.WaitFor(w.t, "rows to be stale", func() bool {
		return pgtest.One[bool](w.t, w.dsn, "SELECT count(*) = 0 FROM mutex_lock WHERE last_heartbeat > clock_timestamp() - stale_after")
	})
	if size := pgtest.One[int64](w.t, w.dsn, "SELECT pg_total_relation_size('mutex_lock')"); size > cmp.Or(w.most, 8<<20) {
		w.t.Errorf("the lock table has %d bytes", size)
	}
}

// noLeaks fails the test when goroutines are left at its end that were not there
// now. It is for tests that do not run in parallel.
func noLeaks(t testing.TB) {
	t.Helper()
	pgtest.Shared(t)
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		if err := goleak.Find(before); err != nil && !t.Failed() {
			t.Errorf("goroutines were left behind: %v", err)
		}
	})
}

// pass lets d go by, or less when ctx ends.
func pass(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// rows is how many rows the lock table has for a name.
func (w *world) rows(name string) int64 {
	w.t.Helper()
	return pgtest.One[int64](w.t, w.dsn, "SELECT count(*) FROM mutex_lock WHERE lock_name = $1", name)
}

// free waits until nobody holds a name.
func (w *world) free(name string) {
	w.t.Helper()
	pgtest.WaitFor(w.t, name+" to be free", func() bool { return w.rows(name) == 0 })
}
