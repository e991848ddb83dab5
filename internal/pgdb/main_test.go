package pgdb

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// open opens a DB that the test's end closes.
func open[S Source](t testing.TB, source S, o Options) *DB {
	t.Helper()
	db, err := Open(source, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shut(t, db) })
	return db
}

func shut(t testing.TB, db *DB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := db.Close(ctx); err != nil {
		t.Error(err)
	}
}

// fresh is the DSN of a new database.
func fresh(t testing.TB) string {
	t.Helper()
	return pgtest.Shared(t).Database(t)
}

func st(sql string) Statement { return Statement{Name: "test", SQL: sql} }

// one runs a statement that returns one value.
func one[T any](t testing.TB, db *DB, lane Lane, sql string, args ...any) T {
	t.Helper()
	v, err := try[T](t.Context(), db, lane, sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func try[T any](ctx context.Context, db *DB, lane Lane, sql string, args ...any) (v T, err error) {
	rows := 0
	err = db.Run(ctx, lane, st(sql), args, func(row Row) error {
		rows++
		return row.Scan(&v)
	})
	if err == nil && rows != 1 {
		err = errors.New("not one row")
	}
	return v, err
}

func pid(t testing.TB, db *DB, lane Lane) int32 {
	t.Helper()
	return one[int32](t, db, lane, "SELECT pg_backend_pid()")
}

// busy starts a statement that does not end by itself and returns once the
// server runs it, with the backend's pid.
func busy(t testing.TB, ctx context.Context, dsn string, db *DB, lane Lane) (pid int32, result <-chan error) {
	t.Helper()
	failed := make(chan error, 1)
	go func() { failed <- db.Run(ctx, lane, st("SELECT pg_sleep(600) /* busy */"), nil, nil) }()
	pgtest.WaitFor(t, "the statement to run", func() bool {
		pids := pgtest.Column[int32](t, dsn, `SELECT pid FROM pg_stat_activity
			WHERE state = 'active' AND query LIKE '%/* busy */%' AND datname = current_database() AND pid <> pg_backend_pid()`)
		if len(pids) == 1 {
			pid = pids[0]
		}
		return len(pids) == 1
	})
	return pid, failed
}

func wantClass(t testing.TB, err error, want Class) {
	t.Helper()
	if got := Classify(err); got != want {
		t.Errorf("Classify(%v) = %v, want %v", err, got, want)
	}
}

func wantIs(t testing.TB, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("error %v does not match %v", err, target)
	}
}

func wantText(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q lacks %q", text, part)
		}
	}
}

// gone waits until no session of the DB is left.
func gone(t testing.TB, dsn, application string) {
	t.Helper()
	pgtest.WaitFor(t, "all sessions to end", func() bool {
		return len(pgtest.Backends(t, dsn, application)) == 0
	})
}

func newPool(t testing.TB, dsn string, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	pgtest.Must(t, err)
	if change != nil {
		change(config)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	pgtest.Must(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// dialing puts wrap around every connection of a pool.
func dialing(wrap func(net.Conn) net.Conn) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) {
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return wrap(conn), nil
		}
	}
}
