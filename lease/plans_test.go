package lease

import (
	"fmt"
	"testing"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// VACUUM finds a table of locks empty, and to read an empty table as a whole is
// what the planner then likes best: plans made at that moment, and kept, read all
// that is dead later on.
func TestATableThatWasEmptyIsReadByItsIndexes(t *testing.T) {
	dsn := database(t, nil)
	conn := pgtest.Conn(t, dsn)
	pgtest.Exec(t, conn, "VACUUM ANALYZE mutex_lock")
	pgtest.Exec(t, conn, "VACUUM ANALYZE mutex_lock_waiter")
	scans := func(what string) int {
		return pgtest.One[int](t, conn, "SELECT sum("+what+")::int FROM pg_stat_user_tables WHERE relname IN ('mutex_lock', 'mutex_lock_waiter')")
	}
	c := start(t, dsn, nil)
	whole, indexed := scans("seq_scan"), scans("idx_scan")
	const rounds = 20 // more than it takes to settle for a plan
	for i := range rounds {
		term, other := c.take(request("job")), c.take(waiting(fmt.Sprint("other", i)))
		c.busy(request("job"))
		c.renew(term)
		c.Renew(t.Context(), []engine.Term{term, other})
		c.drop(term)
		c.drop(other)
	}
	pgtest.Must(t, c.Close(t.Context())) // a session tells of what it did when it ends
	pgtest.WaitFor(t, "the statistics", func() bool {
		return scans("idx_scan")+scans("seq_scan") >= whole+indexed+rounds*8
	})
	if got := scans("seq_scan"); got != whole {
		t.Errorf("%d times a table was read as a whole", got-whole)
	}
}
