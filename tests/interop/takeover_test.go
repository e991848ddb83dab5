//go:build interop

package interop

import (
	"slices"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/internal/pgtest"
	"github.com/pgmutex/pgmutex/lease"
)

func TestPythonTakesOverFromDeadGo(t *testing.T) {
	onBothTables(t, func(t *testing.T, dsn string) {
		term := crashed(t, job{DSN: dsn, Name: "job", Label: "go-1", Peers: agreed, Stale: agreed})
		p := startPeer(t, dsn, "job", "python-1", within(agreed))
		age(t, dsn, "job", agreed/2)
		if p.try() {
			t.Fatal("Python took over before its threshold")
		}
		age(t, dsn, "job", agreed+time.Second)
		if !p.try() {
			t.Fatal("Python could not take over a dead Go process's lock")
		}
		if from := p.told("reclaimed"); !slices.Equal(from, []string{term}) {
			t.Errorf("Python took over from %q, want %q", from, term)
		}
		// What the dead holder left in our columns is not the new one's promise.
		held := open(t, dsn, "go-2", nil, pgmutex.Options{}).busy(t, "job", "python-1")
		if held.Details != nil {
			t.Errorf("Python's hold shows %v", held.Details)
		}
	})
}

func TestGoTakesOverFromDeadPython(t *testing.T) {
	onBothTables(t, func(t *testing.T, dsn string) {
		p := startPeer(t, dsn, "job", "python-1", within(agreed))
		if !p.try() {
			t.Fatal("Python did not get a free lock")
		}
		p.kill()
		g := open(t, dsn, "go-1", nil, pgmutex.Options{})
		age(t, dsn, "job", agreed/2)
		g.busy(t, "job", "python-1")
		age(t, dsn, "job", agreed+time.Second)
		h := g.take(t, "job")
		g.await("acquired", 0)
		if from := g.told("taken over"); !slices.Equal(from, []string{"python-1"}) || h.Token() == 0 {
			t.Errorf("Go took over from %q with token %d", from, h.Token())
		}
		for past, err := range g.History(t.Context(), "job") {
			must(t, err)
			if past.Term != "python-1" || past.End != pgmutex.EndTakenOver || past.By != "go-1" || past.Token != 0 {
				t.Errorf("the history says %+v", past)
			}
		}
	})
}

// TestLiveHolderIsNeverTakenOver: each side holds one lock for three thresholds
// while the other one wants it all the time.
func TestLiveHolderIsNeverTakenOver(t *testing.T) {
	const threshold, during = 3 * time.Second, 9 * time.Second
	onBothTables(t, func(t *testing.T, dsn string) {
		peers := &lease.Options{PeerStaleAfter: threshold}
		opts := pgmutex.Options{StaleAfter: threshold, PollInterval: 50 * time.Millisecond}
		s := within(threshold)
		s.Poll = 0.05
		holder, contender := open(t, dsn, "go-holder", peers, opts), open(t, dsn, "go-contender", peers, opts)
		pyHolder := startPeer(t, dsn, "python's", "python-holder", s)
		pyContender := startPeer(t, dsn, "go's", "python-contender", s)

		h := holder.take(t, "go's")
		if !pyHolder.try() {
			t.Fatal("Python did not get a free lock")
		}
		pyContender.ask("take", args{"blocking": true, "timeout": during.Seconds()})
		w := contender.start(t.Context(), "python's", during)
		happens(t, w.done, "Go's wait to end")
		if r := pyContender.answer(); r.Error != "LockAcquisitionTimeout" {
			t.Errorf("Python waited for a live Go holder, and then: %+v", r)
		}
		if held := new(pgmutex.HeldError); !as(w.err, &held) || held.Holder != "python-holder" {
			t.Errorf("Go waited for a live Python holder, and then: %v", w.err)
		}

		if err := h.Heartbeat(t.Context()); err != nil || !h.Held() || h.Context().Err() != nil {
			t.Errorf("the Go holder: %v", err)
		}
		pyHolder.do("heartbeat", nil)
		if got := holderOf(t, dsn, "go's"); got != h.Info().Term {
			t.Errorf("the row of the Go holder is %q's", got)
		}
		for who, n := range map[*record]int{
			holder.record: 1, contender.record: 0, pyHolder.record: 1, pyContender.record: 0,
		} {
			if got := who.count("acquired"); got != n {
				t.Errorf("%s was granted a lock %d times, want %d", who.name, got, n)
			}
		}
		if tries := pyContender.count("contended"); tries < 20 {
			t.Errorf("Python tried %d times only", tries)
		}
		must(t, h.Release(t.Context()))
		pyHolder.do("release", nil)
	})
}

// TestRowOfEveryTakeoverForm: whatever statement a Python version takes a dead Go
// holder's lock over with, the row is then that of a Python holder: the package's
// own heartbeat and release work on it, and what the dead one promised is void.
func TestRowOfEveryTakeoverForm(t *testing.T) {
	const promised, threshold = 5 * time.Second, time.Minute
	forms := map[string]string{
		"delete and insert": `DELETE FROM mutex_lock WHERE lock_name = 'job';
			INSERT INTO mutex_lock (lock_name, instance_id, last_heartbeat, acquired_at) VALUES ('job', 'python-1', now(), now())`,
		"upsert": `INSERT INTO mutex_lock (lock_name, instance_id, last_heartbeat, acquired_at) VALUES ('job', 'python-1', now(), now())
			ON CONFLICT (locked, lock_name) DO UPDATE SET instance_id = excluded.instance_id,
			last_heartbeat = excluded.last_heartbeat, acquired_at = excluded.acquired_at`,
		"update": `UPDATE mutex_lock SET instance_id = 'python-1', last_heartbeat = now(), acquired_at = now() WHERE lock_name = 'job'`,
	}
	for form, takeover := range forms {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			dsn := ours(t)
			crashed(t, job{DSN: dsn, Name: "job", Label: "go-1", Peers: threshold, Stale: promised})
			pgtest.Exec(t, dsn, takeover)
			p := startPeer(t, dsn, "job", "python-1", within(threshold))
			p.do("heartbeat", nil)

			g := open(t, dsn, "go-2", &lease.Options{PeerStaleAfter: threshold}, pgmutex.Options{StaleAfter: promised})
			age(t, dsn, "job", promised+time.Second)
			if held := g.busy(t, "job", "python-1"); held.Remaining < threshold-promised-10*time.Second || held.Details != nil {
				t.Errorf("Go was told %+v", held)
			}
			p.do("heartbeat", nil)
			age(t, dsn, "job", threshold+time.Second)
			h := g.take(t, "job")
			if got := p.raises("heartbeat"); got != "LockNotHeldError" {
				t.Errorf("after our takeover Python's heartbeat raised %q", got)
			}
			must(t, h.Release(t.Context()))
		})
	}
}
