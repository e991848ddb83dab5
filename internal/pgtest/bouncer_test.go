package pgtest_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgmutex/pgmutex/internal/pgtest"
)

const simple = "simple_protocol"

func TestBouncerSharesServerConnections(t *testing.T) {
	t.Parallel()
	s := pgtest.Shared(t)
	b := pgtest.NewBouncer(t, s, "transaction", pgtest.BouncerOptions{PoolSize: 1})
	dsn := pgtest.With(b.DSN(s.Database(t)), "default_query_exec_mode", simple)
	first, second := pgtest.Conn(t, dsn), pgtest.Conn(t, dsn)
	const pid = "SELECT pg_backend_pid()"
	before := pgtest.One[int](t, first, pid)
	if other := pgtest.One[int](t, second, pid); other != before {
		t.Errorf("two clients of a pool of one have backends %d and %d", before, other)
	}
	pgtest.Must(t, b.Admin(t.Context(), "RECONNECT"))
	pgtest.WaitFor(t, "a new backend", func() bool { return pgtest.One[int](t, first, pid) != before })
}

func TestBouncerRefusesStartupParameters(t *testing.T) {
	t.Parallel()
	s := pgtest.Shared(t)
	b := pgtest.NewBouncer(t, s, "session", pgtest.BouncerOptions{})
	dsn := b.DSN(s.Database(t))
	pgtest.One[int](t, dsn, "SELECT 1")
	conn, err := pgx.Connect(t.Context(), pgtest.With(dsn, "search_path", "lk"))
	if err == nil {
		conn.Close(t.Context())
	}
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != "08P01" {
		t.Errorf("got %v, want 08P01", err)
	}
}

func TestBouncerPasswords(t *testing.T) {
	t.Parallel()
	s := pgtest.Shared(t)
	const name, password = "pgtest_bounced", `s3c/"ret`
	s.Role(t, name, password)
	b := pgtest.NewBouncer(t, s, "transaction", pgtest.BouncerOptions{Passwords: map[string]string{name: password}})
	good := pgtest.With(b.DSN(s.PasswordDSN("postgres", name, password)), "default_query_exec_mode", simple)
	if who := pgtest.One[string](t, good, "SELECT current_user::text"); who != name {
		t.Errorf("logged in as %s", who)
	}
	conn, err := pgx.Connect(t.Context(), b.DSN(s.PasswordDSN("postgres", name, "wrong")))
	if err == nil {
		conn.Close(t.Context())
		t.Error("logged in with a wrong password")
	}
}
