//go:build interop

package interop

import (
	"testing"
	"time"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/internal/pgtest"
	"github.com/pgmutex/pgmutex/lease"
)

// TestPythonWaitsForAGuardedTransaction: Python's SELECT ... FOR UPDATE stands
// behind lease.Guard, even after the hold was given up; heartbeats do not.
func TestPythonWaitsForAGuardedTransaction(t *testing.T) {
	onBothTables(t, func(t *testing.T, dsn string) {
		pgtest.Exec(t, dsn, "CREATE TABLE work (note text)")
		g := open(t, dsn, "go-1", nil, pgmutex.Options{ReleaseTimeout: 300 * time.Millisecond})
		p := startPeer(t, dsn, "job", "python-1", within(agreed))
		h := g.take(t, "job")
		tx, err := pgtest.Conn(t, dsn).Begin(t.Context())
		must(t, err)
		must(t, lease.Guard(h.Context(), tx))

		p.ask("take", args{"blocking": true})
		blocked(t, dsn)
		must(t, h.Heartbeat(t.Context()))
		pgtest.Exec(t, tx, "INSERT INTO work VALUES ('guarded')")
		if err := h.Release(t.Context()); err == nil {
			t.Error("a release was confirmed beside an open guard")
		}
		if !p.silent() || p.count("contended") != 0 {
			t.Fatal("Python did not wait for the guarded transaction")
		}
		must(t, tx.Commit(t.Context()))
		p.granted()
		if n := pgtest.One[int64](t, dsn, "SELECT count(*) FROM work"); n != 1 {
			t.Errorf("%d notes when Python got the lock", n)
		}
		g.await("released", 0)
		if got := holderOf(t, dsn, "job"); got != "python-1" {
			t.Errorf("the row is %q's", got)
		}
	})
}

// TestPythonsRowIsAsOldAsItsWait: Python writes the time at which its transaction
// began, so behind a guard that lasts, its new row is that old from the start.
func TestPythonsRowIsAsOldAsItsWait(t *testing.T) {
	t.Parallel()
	dsn := ours(t)
	term := crashed(t, job{DSN: dsn, Name: "job", Label: "go-1", Peers: agreed, Stale: agreed})
	p := startPeer(t, dsn, "job", "python-1", seldom(agreed))
	tx, err := pgtest.Conn(t, dsn).Begin(t.Context())
	must(t, err)
	if n := pgtest.Exec(t, tx, guardByHand, "job", term); n != 1 {
		t.Fatalf("%d rows", n)
	}
	age(t, dsn, "job", agreed+time.Second)
	p.ask("take", nil)
	blocked(t, dsn)
	pgtest.Exec(t, tx, "SELECT pg_sleep(1)")
	must(t, tx.Commit(t.Context()))
	p.granted()
	old := pgtest.One[float64](t, dsn, "SELECT extract(epoch FROM clock_timestamp() - last_heartbeat)::float8 FROM mutex_lock")
	if old < 1 {
		t.Errorf("the new row is %v s old: Python's times are no longer those of its transaction's start, correct the documentation", old)
	}
}

// guardByHand is the line of SQL with which any program guards its transaction.
const guardByHand = "SELECT 1 FROM mutex_lock WHERE lock_name = $1 AND instance_id = $2 FOR KEY SHARE"

// TestPythonCanGuardByHand: the package has no guard, the table has: one line in
// the transaction that a Python holder writes in.
func TestPythonCanGuardByHand(t *testing.T) {
	t.Parallel()
	dsn := ours(t)
	g := open(t, dsn, "go-1", nil, pgmutex.Options{})
	p := startPeer(t, dsn, "job", "python-1", within(agreed))
	if !p.try() {
		t.Fatal("Python did not get a free lock")
	}
	tx, err := pgtest.Conn(t, dsn).Begin(t.Context()) // as if it were Python's
	must(t, err)
	if n := pgtest.Exec(t, tx, guardByHand, "job", "python-1"); n != 1 {
		t.Fatalf("%d rows", n)
	}
	p.do("heartbeat", nil)
	p.kill()
	age(t, dsn, "job", agreed+time.Second)
	if _, err := g.TryAcquire(t.Context(), "job"); err == nil {
		t.Error("Go took over beside an open guard")
	}
	w := g.start(t.Context(), "job", bound)
	must(t, tx.Commit(t.Context()))
	w.granted(t)
}
