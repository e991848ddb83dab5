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
	"github.com/jackc/pgx/v5/pgconn"

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
	pgtest.Must(t, lease.Migrate(t.Context(), dsn, &lease.Options{Table: "raw_lock"}))
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

// What a program would write by hand to keep what the lease engine keeps, in tables
// like its own: a lock's row, for which it gets a token, and when it goes an event.
const (
	rawTakeSQL = `INSERT INTO raw_lock (lock_name, instance_id, last_heartbeat, acquired_at, promised_by,
			stale_after, heartbeat_every, alert_after, details)
		VALUES ($1, $2, clock_timestamp(), clock_timestamp(), $2, $3, $4, $5, $6)
		RETURNING nextval('raw_lock_token')`
	rawGiveSQL = `WITH gone AS (
			DELETE FROM raw_lock WHERE lock_name = $1 AND instance_id = $2 RETURNING lock_name, instance_id, acquired_at
		)
		INSERT INTO raw_lock_event (lock_name, instance_id, acquired_at, ended_at, how)
		SELECT lock_name, instance_id, acquired_at, clock_timestamp(), 'released' FROM gone`
)

const rawTerm = "host-4711-abcdef~0123456789abcdef"

var rawDetails = map[string]string{"host": "host", "pid": "4711", "program": "bench.test"}

// An execer is a connection or a pool.
type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

func rawCycle(ctx context.Context, db execer, name string) error {
	_, err := db.Exec(ctx, rawTakeSQL, name, rawTerm, 600*time.Second, 10*time.Second, 30*time.Second, rawDetails)
	if err == nil {
		_, err = db.Exec(ctx, rawGiveSQL, name, rawTerm)
	}
	return err
}

func (l *lab) cycle() { pgtest.Must(l.T, rawCycle(l.Context(), l.raw, "x")) }

// narrow takes a row of nothing but a name and a time, and removes it.
func (l *lab) narrow() {
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
