//go:build faults

package faults

import (
	"context"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// TestLongStorm is what the recorded figures come from; PGMUTEX_FAULTS_LENGTH
// says how long it lasts.
func TestLongStorm(t *testing.T) {
	noLeaks(t)
	s := storm{
		seed: seed(t), length: length(t, time.Minute), clients: 8, workers: 12, locks: 96,
		every: 100 * time.Millisecond, faults: everything, cut: 0.1,
	}
	w := newWorld(t, nil)
	s.blow(w)
	w.judge(demand{"acquire granted", "acquire unknown", "acquire held", "takeover", "lost", "write committed", "write refused", "fault"})
}

// Row 12: backends that are terminated cost nothing but time: nobody who can
// renew before the deadline loses a hold.
func TestRow12Terminate(t *testing.T) {
	s := storm{
		seed: seed(t), length: 10 * time.Second, clients: 4, workers: 2, locks: 4,
		every: 250 * time.Millisecond, faults: []string{"terminate"},
	}
	w := newWorld(t, nil)
	calm := w.client("calm") // is not cut off, and has its backends terminated like all others
	h := calm.must("all-along")
	s.blow(w)
	if !h.look() {
		t.Errorf("lost: %v", h.Err())
	}
	pgtest.Must(t, h.end(t.Context()))
	for _, c := range w.history.all() {
		if c.Op == "lost" && c.Client != "victim" { // who is cut off besides
			t.Errorf("%s lost %q: %s", c.Client, c.Name, c.Outcome)
		}
	}
	w.judge(demand{"acquire granted", "takeover", "write committed", "fault"})
}

// restartable is a server that restarts without delay: it waits for connections
// that have not logged in, which the storm may be keeping from that, as long as
// they have time for it.
func restartable(t testing.TB) *pgtest.Server {
	return pgtest.New(t, pgtest.Options{Settings: map[string]string{"authentication_timeout": "'2s'"}})
}

// Row 15: the server is restarted under load, in both ways.
func TestRow15Restarts(t *testing.T) {
	s := storm{
		seed: seed(t), length: 16 * time.Second, clients: 4, workers: 2, locks: 4,
		every: 400 * time.Millisecond, faults: everything,
	}
	w := newWorld(t, restartable(t))
	s.blow(w, func(ctx context.Context) {
		for _, mode := range []pgtest.StopMode{pgtest.Fast, pgtest.Immediate} {
			pass(ctx, 5*time.Second)
			w.history.add(call{Op: "restart", Start: now()})
			if err := w.server.Restart(mode); err != nil {
				w.violation("restart: %v", err)
			}
		}
	})
	// It is live: a lock is granted soon after.
	ctx, cancel := context.WithTimeout(t.Context(), stale+2*slack)
	defer cancel()
	h, err := w.client("after").take(ctx, "lock-0", true)
	if err != nil {
		t.Errorf("after the storm: %v", err)
	} else {
		pgtest.Must(t, h.end(t.Context()))
	}
	w.judge(demand{"acquire granted", "takeover", "write committed", "restart"})
}

// TestAdvisoryLongStorm is TestLongStorm for the advisory engine.
func TestAdvisoryLongStorm(t *testing.T) {
	noLeaks(t)
	s := storm{
		seed: seed(t), length: length(t, 30*time.Second), clients: 8, workers: 6, locks: 48,
		every: 150 * time.Millisecond, faults: audible, cut: 0.1,
	}
	w := newSessions(t, nil)
	s.blow(w)
	w.judge(demand{"acquire granted", "acquire unknown", "acquire held", "lost", "write committed", "write refused", "fault"})
}
