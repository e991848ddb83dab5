//go:build interop

package interop

import (
	"context"
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/internal/faultconn"
	"github.com/pgmutex/pgmutex/lease"
)

// TestGoTrustsItselfNoLongerThanPythonAllows: a holder that promised an hour is
// cut off, beside Python processes that take over after 3 s. It ends itself after
// 2 s, and Python comes after that.
func TestGoTrustsItselfNoLongerThanPythonAllows(t *testing.T) {
	t.Parallel()
	const threshold = 3 * time.Second
	dsn := ours(t)
	server, err := url.Parse(dsn)
	must(t, err)
	proxy := faultconn.New(t, server.Host)
	g := open(t, proxy.DSN(dsn), "go-1", &lease.Options{PeerStaleAfter: threshold},
		pgmutex.Options{StaleAfter: time.Hour, AlertAfter: time.Second})
	p := startPeer(t, dsn, "job", "python-1", within(threshold))

	h := g.take(t, "job")
	if left := time.Until(h.Deadline()); left > threshold*2/3 {
		t.Errorf("trusts itself for %v, want two thirds of %v", left, threshold)
	}
	p.wait()
	proxy.Freeze(faultconn.Requests)
	proxy.Freeze(faultconn.Replies)
	cut := time.Now()
	happens(t, h.Context().Done(), "the hold to end itself")
	ended := time.Now()
	if took := ended.Sub(cut); took > threshold*2/3+slack/10 {
		t.Errorf("cut off, it went on for %v", took)
	}
	if !p.silent() {
		t.Error("Python got the lock before Go had given it up")
	}
	if lost := new(pgmutex.LostError); !as(context.Cause(h.Context()), &lost) || lost.Reason() != pgmutex.LostExpired {
		t.Errorf("the hold ended with %v", context.Cause(h.Context()))
	}
	p.granted()
	proxy.Thaw(faultconn.Requests)
	proxy.Thaw(faultconn.Replies)
	p.do("heartbeat", nil) // nothing that was under way has touched its row
	if err := h.Release(t.Context()); !errors.Is(err, pgmutex.ErrLost) {
		t.Errorf("release after the loss: %v", err)
	}
	p.do("heartbeat", nil)
}

// TestPeerStaleAfterIsAllThereIsToSet is the program of docs/interop.md.
func TestPeerStaleAfterIsAllThereIsToSet(t *testing.T) {
	engine, err := lease.New("", &lease.Options{PeerStaleAfter: time.Minute})
	must(t, err)
	locks, err := pgmutex.New(t.Context(), engine, &pgmutex.Options{Lazy: true})
	must(t, err)
	must(t, locks.Close(t.Context()))
}

// TestPythonRowsGetPeerStaleAfter: neither a longer nor a shorter StaleAfter of
// ours is what a Python holder is judged by.
func TestPythonRowsGetPeerStaleAfter(t *testing.T) {
	t.Parallel()
	dsn := ours(t)
	p := startPeer(t, dsn, "job", "python-1", within(agreed))
	if !p.try() {
		t.Fatal("Python did not get a free lock")
	}
	p.kill()
	hasty := open(t, dsn, "hasty", nil, pgmutex.Options{StaleAfter: 2 * time.Second})
	patient := open(t, dsn, "patient", nil, pgmutex.Options{StaleAfter: time.Hour, AlertAfter: agreed / 3})
	age(t, dsn, "job", agreed/2)
	for _, g := range []goSide{hasty, patient} {
		if left := g.busy(t, "job", "python-1").Remaining; left > agreed/2 {
			t.Errorf("%s was told that %v is left, of %v", g.name, left, agreed)
		}
	}
	age(t, dsn, "job", agreed+time.Second)
	patient.take(t, "job")
}

// TestGoRowsGetTheirOwnPromiseFromGo: Python's threshold is not what Go processes
// judge each other by.
func TestGoRowsGetTheirOwnPromiseFromGo(t *testing.T) {
	t.Parallel()
	dsn := ours(t)
	crashed(t, job{DSN: dsn, Name: "job", Label: "go-1", Peers: agreed, Stale: 3 * time.Second})
	g := open(t, dsn, "go-2", nil, pgmutex.Options{})
	p := startPeer(t, dsn, "job", "python-1", within(agreed))
	age(t, dsn, "job", 4*time.Second)
	if p.try() {
		t.Error("Python took over before its own threshold")
	}
	g.take(t, "job")
}

// TestNoPeersIsAPromise: with it a hold is trusted as its own StaleAfter allows,
// so a Python process on the table breaks exclusion, until the next heartbeat.
func TestNoPeersIsAPromise(t *testing.T) {
	t.Parallel()
	dsn := ours(t)
	g := open(t, dsn, "go-1", &lease.Options{NoPeers: true}, pgmutex.Options{StaleAfter: time.Hour})
	h := g.take(t, "job")
	if left := time.Until(h.Deadline()); left < 39*time.Minute || left > 40*time.Minute {
		t.Errorf("trusts itself for %v, want 40 minutes", left)
	}
	p := startPeer(t, dsn, "job", "python-1", within(3*time.Second))
	robbed(t, dsn, "job", p, 3*time.Second)
	if !h.Held() {
		t.Error("ended without having asked")
	}
	if err := h.Heartbeat(t.Context()); !errors.Is(err, pgmutex.ErrLost) {
		t.Errorf("the next heartbeat: %v", err)
	}
}
