//go:build faults

package faults

import (
	"errors"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// Row 54: whoever is removed by force hears of it at the next heartbeat, and a
// request that means an earlier hold does nothing.
func TestRow54Force(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	c, operator := w.client("c"), w.client("operator")
	first := c.must("job")
	old, err := operator.Inspect(t.Context(), "job")
	pgtest.Must(t, err)
	pgtest.Must(t, first.end(t.Context()))
	h := c.must("job")
	if err := operator.ForceRelease(t.Context(), old, &pgmutex.ForceOptions{Now: true}); !errors.Is(err, pgmutex.ErrHeld) {
		t.Errorf("force of an earlier hold: %v", err)
	}
	if w.rows("job") != 1 || !h.look() {
		t.Error("the request hit another hold")
	}
	seen, err := operator.Inspect(t.Context(), "job")
	pgtest.Must(t, err)
	pgtest.Must(t, operator.ForceRelease(t.Context(), seen, &pgmutex.ForceOptions{Now: true, Reason: "test"}))
	next, err := operator.take(t.Context(), "job", false) // before the loser can know
	pgtest.Must(t, err)
	forced := now()
	h.lostWithin(2*heartbeat + slack/2)
	t.Logf("told after %v", now()-forced)
	// By the loser's heartbeats and its release, the next holder is not touched.
	_ = h.Release(t.Context())
	pass(t.Context(), 3*heartbeat)
	if w.rows("job") != 1 || next.Heartbeat(t.Context()) != nil {
		t.Error("the next holder was touched")
	}
	pgtest.Must(t, next.end(t.Context()))

	// And without anybody after it.
	lone := c.must("lone")
	seen, err = operator.Inspect(t.Context(), "lone")
	pgtest.Must(t, err)
	pgtest.Must(t, operator.ForceRelease(t.Context(), seen, &pgmutex.ForceOptions{Now: true}))
	lone.lostWithin(2*heartbeat + slack/2)
	if w.rows("lone") != 0 {
		t.Error("a heartbeat brought the row back")
	}
	_ = lone.Release(t.Context())
}

// A guarded transaction that is still open when the hold has gone stale keeps
// everybody out until it ends, so that its write is exclusive all the same.
func TestGuardKeepsTakeoversOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	holder, rival := w.client("holder"), w.client("rival")
	h := holder.must("job")
	next := make(chan *holding, 1)
	go func() {
		g, err := rival.take(t.Context(), "job", true)
		if err != nil {
			w.violation("the rival: %v", err)
			next <- nil
			return
		}
		g.write(t.Context(), nil)
		next <- g
	}()
	written := h.write(t.Context(), func() {
		holder.proxy.Freeze(freezeBoth)
		pass(t.Context(), 2*stale)
	})
	ended := now()
	if written != "committed" {
		t.Errorf("the guarded write: %s", written)
	}
	g := <-next
	if g == nil {
		return
	}
	if after := g.began - ended; after < -100*time.Millisecond || after > stale+slack {
		t.Errorf("the rival got in %v after the transaction", after)
	}
	holder.heal()
	_ = h.end(t.Context())
	pgtest.Must(t, g.end(t.Context()))
	w.judge(demand{"takeover", "lost", "write committed"})
}
