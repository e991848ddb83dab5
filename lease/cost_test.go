package lease

import (
	"testing"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/faultconn"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

func TestRoundTrips(t *testing.T) {
	proxy := faultconn.New(t, pgtest.Shared(t).Addr())
	dsn := database(t, nil)
	c := start(t, proxy.DSN(dsn), nil)
	c.pruning.Lock() // now and then a release is followed by a look for what is old
	defer c.pruning.Unlock()
	// A new text takes a second round trip once for each connection.
	other := c.take(request("warm"))
	c.busy(request("warm"))
	c.taken.remove("warm")
	c.busy(request("warm"))
	c.drop(other)
	other = c.take(waiting("warm"))
	c.renew(other)
	c.drop(other)

	measure := func(what string, want int, do func()) {
		t.Helper()
		before := proxy.Counts()
		do()
		if got := proxy.Counts().Since(before).RoundTrips(); got != want {
			t.Errorf("%s: %d round trips, want %d", what, got, want)
		}
	}
	r := request("job")
	var term engine.Term
	measure("acquire", 1, func() { term = c.take(r) })
	measure("busy try", 1, func() { c.busy(request("job")) })
	measure("renewal", 1, func() { c.renew(term) })
	measure("release", 1, func() { c.drop(term) })
	measure("acquire that would wait", 1, func() { term = c.take(waiting("job")) })
	measure("release again", 1, func() { c.drop(term) })

	foreign := start(t, dsn, nil).take(request("theirs"))
	measure("first try at a name of somebody else's", 2, func() { c.busy(request("theirs")) })
	measure("and the next ones", 1, func() { c.busy(request("theirs")) })
	pgtest.Exec(t, pgtest.Conn(t, dsn), "DELETE FROM mutex_lock WHERE lock_name = $1", foreign.Name)
	measure("and when it is free", 1, func() { c.take(request("theirs")) })
}

func TestABusyTryWritesNothing(t *testing.T) {
	// A server of its own: others write to the shared one.
	server := pgtest.New(t, pgtest.Options{})
	dsn := server.Database(t)
	pgtest.Must(t, Migrate(t.Context(), dsn, nil))
	c := start(t, dsn, nil)
	c.take(request("job"))
	waiter := start(t, dsn, nil)
	waiter.listening("job")
	conn := pgtest.Conn(t, dsn)
	pgtest.Exec(t, conn, "ALTER SYSTEM SET autovacuum = off")
	pgtest.Exec(t, conn, "ALTER SYSTEM SET checkpoint_timeout = '1h'")
	pgtest.Exec(t, conn, "SELECT pg_reload_conf()")
	pgtest.Exec(t, conn, "CHECKPOINT")

	// The server itself writes something now and then; a run without it counts.
	pgtest.WaitFor(t, "a run of tries without a byte of WAL", func() bool {
		wal := pgtest.WALBytes(t, conn)
		xid := pgtest.One[string](t, conn, "SELECT pg_snapshot_xmax(pg_current_snapshot())::text")
		for range 50 {
			c.busy(request("job"))
			waiter.busy(waiting("job"))
			waiter.taken.remove("job") // as at the first try
			waiter.busy(request("job"))
		}
		if got := pgtest.One[string](t, conn, "SELECT pg_snapshot_xmax(pg_current_snapshot())::text"); got != xid {
			t.Errorf("transaction IDs went from %s to %s", xid, got)
		}
		return pgtest.WALBytes(t, conn) == wal
	})
}
