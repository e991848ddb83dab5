//go:build interop

package interop

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/internal/pgtest"
	"github.com/pgmutex/pgmutex/lease"
)

func TestGoHoldsAndPythonIsKeptOut(t *testing.T) {
	onBothTables(t, func(t *testing.T, dsn string) {
		g := open(t, dsn, "go-1", nil, pgmutex.Options{})
		p := startPeer(t, dsn, "job", "python-1", within(agreed))
		h := g.take(t, "job")
		if p.try() {
			t.Error("Python took a lock that Go holds")
		}
		p.ask("take", args{"blocking": true, "timeout": 0.5})
		if r := p.answer(); r.Error != "LockAcquisitionTimeout" {
			t.Errorf("Python's wait ended with %+v", r)
		}
		must(t, h.Release(t.Context()))
		if !p.try() {
			t.Error("Python did not get the lock that Go had released")
		}
	})
}

func TestPythonHoldsAndGoIsKeptOut(t *testing.T) {
	onBothTables(t, func(t *testing.T, dsn string) {
		g := open(t, dsn, "go-1", nil, pgmutex.Options{})
		p := startPeer(t, dsn, "job", "python-1", within(agreed))
		if !p.try() {
			t.Fatal("Python did not get a free lock")
		}
		held := g.busy(t, "job", "python-1")
		since := pgtest.One[time.Time](t, dsn, "SELECT acquired_at FROM mutex_lock WHERE lock_name = 'job'")
		if !held.Since.Equal(since) || held.Remaining <= 0 || held.Remaining > agreed || held.Details != nil {
			t.Errorf("Go was told %+v, want since %v and at most %v left", held, since, agreed)
		}
		var failed *pgmutex.AcquireError
		w := g.start(t.Context(), "job", 500*time.Millisecond)
		happens(t, w.done, "the end of a limited wait")
		if !errors.Is(w.err, pgmutex.ErrHeld) || !errors.As(w.err, &failed) || failed.Timeout == 0 {
			t.Errorf("Go's wait ended with %v", w.err)
		}
		p.do("release", nil)
		g.take(t, "job")
	})
}

// TestNamesMeanTheSame: a name is the same row for both, whatever is in it.
func TestNamesMeanTheSame(t *testing.T) {
	t.Parallel()
	dsn := ours(t)
	g := open(t, dsn, "go-1", nil, pgmutex.Options{})
	for i, name := range []string{
		"job", "Job", " spaced out ", "täglich/日本語/🔒", `quote'd "and" back\slash %s $1 {}`,
		strings.Repeat("ä", 64),
	} {
		if err := g.CheckName(name); err != nil {
			t.Error(err)
			continue
		}
		g.take(t, name)
		p := startPeer(t, dsn, name, fmt.Sprintf("python-%d", i), within(agreed))
		if p.try() {
			t.Errorf("%q is not the same lock for both", name)
		}
		p.kill()
	}
	if n := pgtest.One[int64](t, dsn, "SELECT count(*) FROM mutex_lock"); n != 6 {
		t.Errorf("%d rows, want 6", n)
	}
	if g.CheckName(strings.Repeat("ä", 65)) == nil {
		t.Error("Go takes a name of 65 characters, Python does not")
	}
}

// TestNamespaceIsPartOfPythonsName: Python knows no namespaces, and reaches a
// lock in one by its whole name.
func TestNamespaceIsPartOfPythonsName(t *testing.T) {
	t.Parallel()
	dsn := ours(t)
	g := open(t, dsn, "go-1", nil, pgmutex.Options{Namespace: "billing"})
	g.take(t, "job")
	if startPeer(t, dsn, "billing/job", "python-1", within(agreed)).try() {
		t.Error("billing/job is not Go's job in the namespace billing")
	}
	if !startPeer(t, dsn, "job", "python-2", within(agreed)).try() {
		t.Error("job is the same as billing/job")
	}
}

// TestAnotherTable: both sides name it in their options; Python finds it on its
// search path. The one that Python makes has names of its own for the constraints.
func TestAnotherTable(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Shared(t).Database(t)
	pgtest.Exec(t, dsn, "CREATE SCHEMA app")
	s := within(agreed)
	s.Table = "worker_locks"
	p := startPeer(t, pgtest.With(dsn, "options", "-csearch_path=app"), "job", "python-1", s)
	p.do("create", nil)
	if !p.try() {
		t.Fatal("Python did not get a free lock")
	}
	peers := &lease.Options{Table: "app.worker_locks", PeerStaleAfter: agreed}
	must(t, lease.Migrate(t.Context(), dsn, peers))
	g := open(t, dsn, "go-1", peers, pgmutex.Options{})
	g.busy(t, "job", "python-1")
	p.do("release", nil)
	g.take(t, "job")
	if p.try() {
		t.Error("Python took a lock that Go holds")
	}
}

// TestCounter: 3 Go and 3 Python processes, which use the package in its three
// ways, increment a number that none of them protects but by the lock.
func TestCounter(t *testing.T) {
	t.Parallel()
	const rounds = 50
	dsn := ours(t)
	pgtest.Exec(t, dsn, "CREATE TABLE counter AS SELECT 0 AS n")

	var peers []*peer
	s := within(agreed)
	s.Poll = 0.02
	for i, mode := range []string{"dsn", "pool", "async"} {
		p := startPeer(t, dsn, "counter", fmt.Sprintf("python-%d", i), s)
		p.ask("count", args{"rounds": rounds, "mode": mode})
		peers = append(peers, p)
	}
	var workers []*exec.Cmd
	for i := range 3 {
		cmd, _ := startWorker(t, job{
			DSN: dsn, Name: "counter", Label: fmt.Sprintf("go-%d", i), Peers: agreed, Stale: agreed, Rounds: rounds,
		})
		workers = append(workers, cmd)
	}
	for _, cmd := range workers {
		ended := make(chan struct{})
		var err error
		go func() { err = cmd.Wait(); close(ended) }()
		happens(t, ended, "a Go process to have counted")
		if err != nil {
			t.Errorf("a Go process: %v\n%s", err, cmd.Stderr)
		}
	}
	grants := 0
	for _, p := range peers {
		p.clean(p.answerWithin(2 * bound))
		grants += p.count("acquired")
	}
	if grants != 3*rounds {
		t.Errorf("Python was granted the lock %d times, want %d", grants, 3*rounds)
	}
	if n := pgtest.One[int32](t, dsn, "SELECT n FROM counter"); n != 6*rounds {
		t.Errorf("the counter is at %d, want %d", n, 6*rounds)
	}
}
