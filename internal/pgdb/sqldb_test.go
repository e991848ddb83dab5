package pgdb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

func sqlDB(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	pool, err := sql.Open("pgx", dsn)
	pgtest.Must(t, err)
	t.Cleanup(func() { pool.Close() })
	return pool
}

func TestSQLDB(t *testing.T) {
	dsn := pgtest.With(fresh(t), "application_name", "borrowed", "lock_timeout", "1h")
	pool := sqlDB(t, dsn)
	db := open(t, pool, Options{})
	before := pid(t, db, Keep)
	if f := db.Facts(); !f.Direct || f.Settings || db.CanListen() {
		t.Errorf("facts: %+v", f)
	}
	both := Statement{Name: "which", SQL: "SELECT current_setting('lock_timeout')", Direct: "SELECT 'direct'"}
	var got string
	pgtest.Must(t, db.Run(t.Context(), Keep, both, nil, func(row Row) error { return row.Scan(&got) }))
	if got != "1h" {
		t.Errorf("got %q", got)
	}
	wantClass(t, db.Run(t.Context(), Keep, st("SELECT 1/0"), nil, nil), Definite)
	if pid(t, db, Keep) != before {
		t.Error("a definite error cost the connection")
	}
	pgtest.Must(t, db.Tx(t.Context(), func(ctx context.Context, q Querier) error {
		_, err := q.Exec(ctx, "CREATE TABLE t (id int)")
		return err
	}))

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	interrupted, failed := busy(t, ctx, dsn, db, Keep)
	cancel()
	err := <-failed
	wantClass(t, err, Unknown)
	wantIs(t, err, context.Canceled)
	if pid(t, db, Keep) == interrupted {
		t.Error("an interrupted connection was used again")
	}

	shut(t, db)
	if n := pool.Stats().InUse; n != 0 {
		t.Errorf("%d connections were not given back", n)
	}
	pgtest.Must(t, pool.PingContext(t.Context()))
}

// foreign is a driver that is not pgx.
type foreign struct{ driver.Conn }

func (foreign) Connect(context.Context) (driver.Conn, error) { return foreign{}, nil }
func (foreign) Driver() driver.Driver                        { return nil }
func (foreign) Close() error                                 { return nil }

func TestSQLDBForeignDriver(t *testing.T) {
	pool := sql.OpenDB(foreign{})
	defer pool.Close()
	err := open(t, pool, Options{}).Check(t.Context())
	wantIs(t, err, errors.ErrUnsupported)
	wantClass(t, err, NotSent)
	if n := pool.Stats().InUse; n != 0 {
		t.Errorf("%d connections were not given back", n)
	}
}

// Whoever takes a lock now and then keeps no connection for it.
func TestSQLDBGivesBack(t *testing.T) {
	pool := sqlDB(t, fresh(t))
	db := open(t, pool, Options{})
	pid(t, db, Work)
	pgtest.WaitFor(t, "the connection to be given back", func() bool { return pool.Stats().InUse == 0 })
}

func TestSQLDBRefusals(t *testing.T) {
	pool := sqlDB(t, "postgres://u@h/db")
	pool.SetMaxOpenConns(1)
	if _, err := Open(pool, Options{}); err == nil {
		t.Error("a limit of one was accepted")
	}
	if _, err := Open((*sql.DB)(nil), Options{}); err == nil {
		t.Error("nil was accepted")
	}
	pool.SetMaxOpenConns(2)
	db := open(t, pool, Options{})
	_, err := db.Listen("c", func(string, bool) {})
	wantIs(t, err, errors.ErrUnsupported)

	// All that there are are in use by the application.
	pool = sqlDB(t, fresh(t))
	pool.SetMaxOpenConns(2)
	for range 2 {
		c, err := pool.Conn(t.Context())
		pgtest.Must(t, err)
		defer c.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err = open(t, pool, Options{}).Check(ctx)
	wantClass(t, err, NotSent)
	wantIs(t, err, context.DeadlineExceeded)
}
