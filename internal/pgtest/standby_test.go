package pgtest_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgmutex/pgmutex/internal/pgtest"
)

func TestStandbyFollowsAndIsPromoted(t *testing.T) {
	t.Parallel()
	primary := pgtest.New(t, pgtest.Options{})
	database := primary.DSN("postgres", pgtest.Superuser)
	pgtest.Exec(t, database, "CREATE TABLE mark (n int)")
	standby := primary.Standby(t, "second")
	there := standby.DSN("postgres", pgtest.Superuser)

	pgtest.Exec(t, database, "INSERT INTO mark VALUES (1)")
	pgtest.WaitFor(t, "the row on the standby", func() bool {
		return pgtest.One[int64](t, there, "SELECT count(*) FROM mark") == 1
	})
	const insert = "INSERT INTO mark VALUES (2)"
	var refused *pgconn.PgError
	if _, err := pgtest.Conn(t, there).Exec(t.Context(), insert); !errors.As(err, &refused) || refused.Code != "25006" {
		t.Errorf("a write on the standby: %v, want 25006", err)
	}
	name := pgtest.One[string](t, database, "SELECT application_name FROM pg_stat_replication")
	if name != "second" {
		t.Errorf("the standby is called %q", name)
	}

	pgtest.Must(t, primary.Kill())
	pgtest.Must(t, standby.Promote(t.Context()))
	pgtest.Exec(t, there, insert)
}
