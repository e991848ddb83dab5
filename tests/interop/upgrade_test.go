//go:build interop

package interop

import (
	"testing"
	"time"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/internal/pgtest"
	"github.com/pgmutex/pgmutex/lease"
)

// TestUpgradeWhilePythonWorks: the table that Python made is extended while one
// process holds a lock in it, with heartbeats all the time, and another one waits
// for it. Neither notices; Go comes in after them.
func TestUpgradeWhilePythonWorks(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Shared(t).Database(t)
	s := within(agreed)
	s.Heartbeat, s.Poll = 0.02, 0.02
	holder := startPeer(t, dsn, "job", "python-1", s)
	holder.do("create", nil)
	if !holder.try() {
		t.Fatal("Python did not get a free lock")
	}
	waiter := startPeer(t, dsn, "job", "python-2", s)
	waiter.wait()
	if err := lease.Verify(t.Context(), dsn, nil); err == nil {
		t.Error("Go can use the table before the upgrade")
	}
	row := "SELECT lock_name || ' ' || locked || ' ' || instance_id || ' ' || acquired_at FROM mutex_lock"
	before := pgtest.One[string](t, dsn, row)

	must(t, lease.Migrate(t.Context(), dsn, nil))
	must(t, lease.Migrate(t.Context(), dsn, nil)) // again: nothing
	must(t, lease.Verify(t.Context(), dsn, nil))

	if after := pgtest.One[string](t, dsn, row); after != before {
		t.Errorf("the held row was %q and is %q", before, after)
	}
	holder.do("heartbeat", nil)
	seen := waiter.count("contended")
	waiter.await("contended", seen) // it goes on polling
	g := open(t, dsn, "go-1", nil, pgmutex.Options{PollInterval: 50 * time.Millisecond})
	g.busy(t, "job", "python-1")
	w := g.wait(t, "job")
	holder.do("release", nil)
	select { // either may be first
	case r := <-waiter.answers:
		waiter.clean(r)
		waiter.do("release", nil)
		must(t, w.granted(t).Release(t.Context()))
	case <-w.done:
		must(t, w.granted(t).Release(t.Context()))
		waiter.granted()
		waiter.do("release", nil)
	}
	for _, p := range []*peer{holder, waiter} {
		if p.count("acquired") != 1 || p.count("released") != 1 {
			t.Errorf("%s: %v", p.id, p.events)
		}
	}
}

// TestPythonsCreateSchemaOnOurTable changes nothing.
func TestPythonsCreateSchemaOnOurTable(t *testing.T) {
	t.Parallel()
	dsn := ours(t)
	describe := `SELECT string_agg(d, E'\n' ORDER BY d) FROM (
		SELECT attname || ' ' || format_type(atttypid, atttypmod) || ' ' || attnotnull
		FROM pg_attribute WHERE attrelid = 'mutex_lock'::regclass AND attnum > 0
		UNION ALL SELECT conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'mutex_lock'::regclass
		UNION ALL SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = 'mutex_lock'::regclass) AS all_of_it(d)`
	before := pgtest.One[string](t, dsn, describe)
	startPeer(t, dsn, "job", "python-1", within(agreed)).do("create", nil)
	if after := pgtest.One[string](t, dsn, describe); after != before {
		t.Errorf("the table was\n%s\nand is\n%s", before, after)
	}
	must(t, lease.Verify(t.Context(), dsn, nil))
}
