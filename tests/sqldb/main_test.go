package sqldb

import (
	"context"
	"database/sql"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/internal/pgtest"
	"github.com/pgmutex/pgmutex/lease"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// drivers are the names that the two are registered by.
var drivers = []string{"pgx", "postgres"}

// eachDriver runs a test with both.
func eachDriver(t *testing.T, test func(t *testing.T, driver string)) {
	for _, driver := range drivers {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			test(t, driver)
		})
	}
}

// pool is an application's, which has set what it likes. Lib/pq does without
// TLS only when it is told to.
func pool(t testing.TB, driver, dsn string, size int) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, pgtest.With(dsn, "sslmode", "disable"))
	pgtest.Must(t, err)
	db.SetMaxOpenConns(size)
	t.Cleanup(func() { pgtest.Must(t, db.Close()) })
	return db
}

// database is a database with the tables in it.
func database(t testing.TB) string {
	t.Helper()
	dsn := pgtest.Shared(t).Database(t)
	pgtest.Must(t, lease.Migrate(t.Context(), dsn, nil))
	return dsn
}

// open opens a client that the test's end closes.
func open(t testing.TB, db *sql.DB, o *pgmutex.Options) *pgmutex.Client {
	t.Helper()
	c, err := lease.Open(t.Context(), db, o)
	pgtest.Must(t, err)
	t.Cleanup(func() { shut(t, c) })
	return c
}

func shut(t testing.TB, c *pgmutex.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := c.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}
