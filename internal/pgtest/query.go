package pgtest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// querier is what pgx connections, pools and transactions have in common.
type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Conn opens a connection that is closed with the test.
func Conn(t testing.TB, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupBound)
		defer cancel()
		conn.Close(ctx) // its error says nothing about what was tested
	})
	return conn
}

// Exec runs a statement, or several when there are no arguments, and returns the
// number of rows that the last one touched. on is a DSN, for a connection of the
// statement's own, or a pgx connection, pool or transaction.
func Exec(t testing.TB, on any, sql string, args ...any) int64 {
	t.Helper()
	q, done := target(t, on)
	defer done()
	tag, err := q.Exec(t.Context(), sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return tag.RowsAffected()
}

// One runs a query that returns one row of one column. on is as for [Exec].
func One[T any](t testing.TB, on any, sql string, args ...any) T {
	t.Helper()
	q, done := target(t, on)
	defer done()
	rows, err := q.Query(t.Context(), sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	value, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

// Column runs a query that returns any number of rows of one column. on is as
// for [Exec].
func Column[T any](t testing.TB, on any, sql string, args ...any) []T {
	t.Helper()
	q, done := target(t, on)
	defer done()
	rows, err := q.Query(t.Context(), sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	values, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return values
}

// target makes a querier of on, and what to call when it is no longer needed.
func target(t testing.TB, on any) (querier, func()) {
	t.Helper()
	switch on := on.(type) {
	case querier:
		return on, func() {}
	case string:
		conn, err := pgx.Connect(t.Context(), on)
		if err != nil {
			t.Fatalf("connect: %v", err)
		}
		return conn, func() {
			ctx, cancel := context.WithTimeout(context.Background(), cleanupBound)
			defer cancel()
			conn.Close(ctx)
		}
	}
	t.Fatalf("pgtest: cannot query a %T: want a DSN or a pgx connection, pool or transaction", on)
	return nil, nil
}

// WALBytes is the position of the write-ahead log: the difference of two is what
// was written in between, by everybody on the server.
func WALBytes(t testing.TB, on any) int64 {
	t.Helper()
	return One[int64](t, on, "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint")
}

// Backends returns the pids of the sessions with an application name.
func Backends(t testing.TB, on any, application string) []int32 {
	t.Helper()
	return Column[int32](t, on,
		"SELECT pid FROM pg_stat_activity WHERE application_name = $1 AND backend_type = 'client backend' ORDER BY pid", application)
}

// WaitFor asks cond again and again until it is true, and fails the test with
// what when it is not within 30 s. It is for conditions on the server, which
// nothing announces; cond may call the helpers of this package.
func WaitFor(t testing.TB, what string, cond func() bool) {
	t.Helper()
	const bound = 30 * time.Second
	deadline := time.NewTimer(bound)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("waited %v in vain for %s", bound, what)
		}
	}
}

// Must fails the test on an error: Must(t, server.Restart(Fast)).
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
