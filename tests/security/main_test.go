package security

import (
	"context"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/internal/pgtest"
	"github.com/pgmutex/pgmutex/lease"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// tables makes a database with lock tables and returns its owner's DSN and name.
func tables(t *testing.T) (dsn, database string) {
	t.Helper()
	dsn = pgtest.Shared(t).Database(t)
	pgtest.Must(t, lease.Migrate(t.Context(), dsn, nil))
	return dsn, pgtest.One[string](t, dsn, "SELECT current_database()::text")
}

// role makes a role with the rights for a purpose, none for "", and returns its
// DSN.
func role(t *testing.T, owner, database, purpose string) string {
	t.Helper()
	name := database + "_" + purpose
	name = name[max(0, len(name)-60):]
	pgtest.Shared(t).Role(t, name, "secret")
	if purpose != "" {
		script, err := lease.Grants(nil, name, purpose)
		pgtest.Must(t, err)
		for range 2 { // it may be run again
			pgtest.Exec(t, owner, script)
		}
	}
	return pgtest.Shared(t).PasswordDSN(database, name, "secret")
}

// quick is for tests in which nothing must be lost and nothing waits for long.
func quick() *pgmutex.Options {
	return &pgmutex.Options{StaleAfter: 30 * time.Second, Heartbeat: 200 * time.Millisecond}
}

// closing closes a client with the test.
func closing(t *testing.T, c *pgmutex.Client) *pgmutex.Client {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		_, _ = c.ReleaseAll(ctx)
		if err := c.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

func open(t *testing.T, dsn string, opts *pgmutex.Options) *pgmutex.Client {
	t.Helper()
	if opts == nil {
		opts = quick()
	}
	c, err := lease.Open(t.Context(), dsn, opts)
	pgtest.Must(t, err)
	return closing(t, c)
}
