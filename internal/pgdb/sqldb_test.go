package pgdb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"sync"
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
	pgtest.Must(t, db.Reserve(t.Context(), time.Hour))
	before := pid(t, db, Keep)
	if f := db.Facts(); !f.Direct || f.Settings || !db.CanListen() {
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
	pgtest.Must(t, db.Script(t.Context(), "make", "CREATE TABLE t (id int)"))

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
	pid(t, db, Keep)
	pgtest.WaitFor(t, "the connections to be given back", func() bool { return pool.Stats().InUse == 0 })
}

// What is reserved stays, whatever the application takes, and everything else
// shares it. Nothing is left changed, and all is given back.
func TestSQLDBReserve(t *testing.T) {
	for _, size := range []int{2, 3, 5} {
		pool := sqlDB(t, fresh(t))
		pool.SetMaxOpenConns(size)
		db := open(t, pool, Options{})
		pgtest.Must(t, db.Reserve(t.Context(), time.Hour))
		var theirs []*sql.Conn
		for range size - 1 {
			c, err := pool.Conn(t.Context())
			pgtest.Must(t, err)
			theirs = append(theirs, c)
		}
		before := pid(t, db, Keep)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if got := pid(t, db, Work); got != before {
					t.Errorf("size %d: another connection than the reserved one", size)
				}
			})
		}
		all.Wait()
		pgtest.Must(t, db.Reserve(t.Context(), time.Hour))
		for _, c := range theirs {
			pgtest.Must(t, c.Close())
		}
		if got := pid(t, db, Work); (got == before) != (size == 2) {
			t.Errorf("size %d: a connection of its own for work: %v", size, got != before)
		}
		pgtest.WaitFor(t, "the second connection to be given back", func() bool { return pool.Stats().InUse == 1 })
		if pid(t, db, Keep) != before {
			t.Errorf("size %d: the reserved connection was given back", size)
		}
		shut(t, db)
		if n := pool.Stats().InUse; n != 0 {
			t.Errorf("size %d: %d connections were not given back", size, n)
		}
		if got := pool.Stats().MaxOpenConnections; got != size {
			t.Errorf("the pool was reconfigured to %d", got)
		}
	}
}

// A connection of our own listens, made as the application's are.
func TestSQLDBListens(t *testing.T) {
	dsn := pgtest.With(fresh(t), "application_name", "listens")
	pool := sqlDB(t, dsn)
	pool.SetMaxOpenConns(2)
	db := open(t, pool, Options{})
	l, c := listen(t, db, "c")
	wantHeard(t, c, again)
	if pool.Stats().InUse != 0 {
		t.Error("a connection of the application's is used for LISTEN")
	}
	pgtest.Exec(t, dsn, "NOTIFY c, 'x'")
	wantHeard(t, c, heard{payload: "x"})
	pgtest.One[bool](t, dsn, `SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity
		WHERE application_name = 'listens' AND query ~ '^LISTEN'`)
	wantHeard(t, c, again)
	l.Close()
	shut(t, db)
	pgtest.Must(t, pool.PingContext(t.Context()))
}

func TestSQLDBRefusals(t *testing.T) {
	pool := sqlDB(t, "postgres://u@h/db")
	pool.SetMaxOpenConns(1)
	if _, err := Open(pool, Options{}); err == nil || !strings.Contains(err.Error(), "SetMaxOpenConns") {
		t.Errorf("a limit of one: %v", err)
	}
	if _, err := Open((*sql.DB)(nil), Options{}); err == nil {
		t.Error("nil was accepted")
	}
	pool.SetMaxOpenConns(2)
	db := open(t, pool, Options{})
	pool.SetMaxOpenConns(1)
	err := db.Check(t.Context())
	wantClass(t, err, NotSent)
	wantText(t, err.Error(), "SetMaxOpenConns")

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
	wantText(t, err.Error(), "in use")
	wantIs(t, err, context.DeadlineExceeded)
}
