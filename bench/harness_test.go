//go:build bench

package bench

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/internal/pgtest"
	"github.com/pgmutex/pgmutex/lease"
)

// A lab is a durable server with one database, set up for leases and for raw
// statements.
type lab struct {
	*testing.T
	server *pgtest.Server
	dsn    string
	raw    *pgx.Conn
}

func newLab(t *testing.T) *lab {
	server := pgtest.New(t, pgtest.Options{Durable: true})
	dsn := server.Database(t)
	l := &lab{T: t, server: server, dsn: dsn, raw: pgtest.Conn(t, dsn)}
	pgtest.Must(t, lease.Migrate(t.Context(), dsn, nil))
	pgtest.Exec(t, l.raw, `CREATE TABLE raw (name text PRIMARY KEY, beat timestamptz NOT NULL DEFAULT now())`)
	fmt.Printf("# PostgreSQL %d, fsync and synchronous_commit on\n", server.Major())
	return l
}

func (l *lab) client(dsn string, opts *pgmutex.Options) *pgmutex.Client {
	l.Helper()
	c, err := lease.Open(l.Context(), dsn, opts)
	pgtest.Must(l.T, err)
	l.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		c.Close(ctx) // what is still held may lapse: the server goes with the test
	})
	return c
}

// cycle takes a raw row and removes it, as little as a lock could do.
func (l *lab) cycle() {
	pgtest.Exec(l.T, l.raw, `INSERT INTO raw (name) VALUES ($1)`, "x")
	pgtest.Exec(l.T, l.raw, `DELETE FROM raw WHERE name = $1`, "x")
}

// alternate runs a and b in turn and returns the median time of each.
func alternate(rounds int, a, b func()) (medianA, medianB time.Duration) {
	var as, bs []time.Duration
	for i := range rounds + 2 {
		ta, tb := timed(a), timed(b)
		if i >= 2 { // the first rounds prepare statements
			as, bs = append(as, ta), append(bs, tb)
		}
	}
	return median(as), median(bs)
}

func timed(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

func median[T ~int64 | ~float64](values []T) T {
	slices.Sort(values)
	return values[len(values)/2]
}

// report prints one figure in a form that programs can read, and fails the run
// when it is out of its bound.
func (l *lab) report(name string, value float64, unit, relation string, bound float64) {
	l.Helper()
	verdict := "pass"
	if relation == "<=" && value > bound || relation == ">=" && value < bound {
		verdict = "FAIL"
		l.Fail()
	}
	fmt.Fprintf(os.Stdout, "%-28s %10.2f %-12s %s %-8g %s\n", name, value, unit, relation, bound, verdict)
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }
