//go:build interop

package interop

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// as is errors.As for a variable that is only looked at when it succeeds.
func as[T error](err error, target *T) bool { return errors.As(err, target) }

// robbed lets Python take over from a Go holder that is alive, which only an aged
// row makes possible: until its next heartbeat.
func robbed(t testing.TB, dsn, name string, p *peer, threshold time.Duration) {
	t.Helper()
	for range 100 { // a heartbeat may come in between
		age(t, dsn, name, threshold+time.Second)
		if p.try() {
			return
		}
	}
	t.Fatal("Python never got in between two heartbeats")
}

func TestGoIsToldThatPythonTookOver(t *testing.T) {
	onBothTables(t, func(t *testing.T, dsn string) {
		g := open(t, dsn, "go-1", nil, pgmutex.Options{})
		p := startPeer(t, dsn, "job", "python-1", within(agreed))
		h := g.take(t, "job")
		robbed(t, dsn, "job", p, agreed)
		happens(t, h.Context().Done(), "Go's context to end")
		var lost *pgmutex.LostError
		if cause := context.Cause(h.Context()); !errors.Is(cause, pgmutex.ErrLost) || !errors.As(cause, &lost) || h.Held() {
			t.Fatalf("the hold ended with %v, held %t", cause, h.Held())
		}
		g.await("lost", 0) // by now it has asked why
		if lost.Reason() != pgmutex.LostTakenOver || lost.By() != "python-1" {
			t.Errorf("lost: %v", lost)
		}
		if err := h.Release(t.Context()); !errors.Is(err, pgmutex.ErrLost) {
			t.Errorf("release after the loss: %v", err)
		}
		p.do("heartbeat", nil) // the release has not touched its row
		p.do("release", nil)
		h = g.take(t, "job")
		must(t, h.Release(t.Context()))
	})
}

func TestPythonIsToldThatGoTookOver(t *testing.T) {
	onBothTables(t, func(t *testing.T, dsn string) {
		g := open(t, dsn, "go-1", nil, pgmutex.Options{})
		p := startPeer(t, dsn, "job", "python-1", seldom(10*agreed))
		if !p.try() {
			t.Fatal("Python did not get a free lock")
		}
		p.freeze()
		age(t, dsn, "job", agreed+time.Second)
		h := g.take(t, "job")
		p.thaw()
		if !yes(t, p.do("held", nil)) {
			t.Error("Python knows without having asked: correct the documentation")
		}
		if got := p.raises("heartbeat"); got != "LockNotHeldError" {
			t.Errorf("Python's heartbeat raised %q", got)
		}
		if yes(t, p.do("held", nil)) {
			t.Error("Python believes that it holds the lock")
		}
		if got := p.raises("release"); got != "LockNotHeldError" {
			t.Errorf("Python's release raised %q", got)
		}
		if err := h.Heartbeat(t.Context()); err != nil || !h.Held() {
			t.Errorf("Go's hold after Python's late release: %v", err)
		}
	})
}

// TestForcedReleaseOfPythonsHold: Python reads no request to stop; its row can be
// removed, and it learns of that at its next heartbeat.
func TestForcedReleaseOfPythonsHold(t *testing.T) {
	t.Parallel()
	dsn := ours(t)
	g := open(t, dsn, "go-1", nil, pgmutex.Options{})
	p := startPeer(t, dsn, "job", "python-1", within(agreed))
	if !p.try() {
		t.Fatal("Python did not get a free lock")
	}
	seen, err := g.Inspect(t.Context(), "job")
	must(t, err)
	if err := g.ForceRelease(t.Context(), seen, nil); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("asking Python to stop: %v", err)
	}
	p.do("heartbeat", nil)
	if seen, err = g.Inspect(t.Context(), "job"); err != nil || seen.StopAsked {
		t.Errorf("it was refused, and now: %+v, %v", seen, err)
	}
	must(t, g.ForceRelease(t.Context(), seen, &pgmutex.ForceOptions{Now: true}))
	if got := p.raises("heartbeat"); got != "LockNotHeldError" {
		t.Errorf("Python's heartbeat raised %q", got)
	}
	g.take(t, "job")
}

// TestPythonHoldsHaveNoToken: nothing fences what Python writes, and its holds
// end without a trace; our tokens go on rising.
func TestPythonHoldsHaveNoToken(t *testing.T) {
	t.Parallel()
	dsn := ours(t)
	g := open(t, dsn, "go-1", nil, pgmutex.Options{})
	p := startPeer(t, dsn, "job", "python-1", within(agreed))
	first := g.take(t, "job")
	must(t, first.Release(t.Context()))
	if !p.try() {
		t.Fatal("Python did not get a free lock")
	}
	s, err := g.Inspect(t.Context(), "job")
	must(t, err)
	if s.State != pgmutex.StateHeld || s.Holder != "python-1" || s.Token != 0 || s.Details != nil || s.StaleAfter != agreed {
		t.Errorf("Python's hold: %+v", s)
	}
	p.do("release", nil)
	second := g.take(t, "job")
	if second.Token() <= first.Token() {
		t.Errorf("tokens %d and %d", first.Token(), second.Token())
	}
	must(t, second.Release(t.Context()))
	for past, err := range g.History(t.Context(), "job") {
		must(t, err)
		if past.Holder != "go-1" {
			t.Errorf("the history has %+v", past)
		}
	}
}

// TestAlerts: each side tells of the other's silent holder, before anybody may
// take over.
func TestAlerts(t *testing.T) {
	t.Parallel()
	dsn := ours(t)
	term := crashed(t, job{DSN: dsn, Name: "go's", Label: "go-1", Peers: agreed, Stale: agreed})
	p := startPeer(t, dsn, "go's", "python-1", within(agreed))
	age(t, dsn, "go's", agreed/2)
	if p.try() {
		t.Fatal("Python took over before its threshold")
	}
	if about := p.told("alert"); len(about) != 1 || about[0] != term {
		t.Errorf("Python's alerts are about %q, want %q", about, term)
	}

	dead := startPeer(t, dsn, "python's", "python-2", within(agreed))
	if !dead.try() {
		t.Fatal("Python did not get a free lock")
	}
	dead.kill()
	age(t, dsn, "python's", agreed/2)
	g := open(t, dsn, "go-2", nil, pgmutex.Options{})
	g.busy(t, "python's", "python-2")
	g.await("alert", 0)
	if about := g.told("alert"); len(about) != 1 || about[0] != "python-2" {
		t.Errorf("Go's alerts are about %q", about)
	}
	if n := pgtest.One[int64](t, dsn, "SELECT count(*) FROM mutex_lock"); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
}
