package advisory_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/advisory"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// refused checks that opening fails with an explanation.
func refused(t *testing.T, dsn string, own *advisory.Options, says ...string) {
	t.Helper()
	eng, err := advisory.New(dsn, own)
	pgtest.Must(t, err)
	c, err := pgmutex.New(t.Context(), eng, nil)
	if err == nil {
		closeAfter(t, c)
		t.Fatal("it was opened")
	}
	matches(t, err, errors.ErrUnsupported)
	for _, word := range says {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("no %q in: %v", word, err)
		}
	}
}

func TestPoolersAreRefused(t *testing.T) {
	server := pgtest.Shared(t)
	dsn := server.Database(t)
	for _, mode := range []string{"transaction", "statement", "session"} {
		bouncer := pgtest.NewBouncer(t, server, mode, pgtest.BouncerOptions{})
		refused(t, bouncer.DSN(dsn), nil, "pooler", "lease engine", "DirectSession")
		lazy, err := advisory.Open(t.Context(), bouncer.DSN(dsn), &pgmutex.Options{Lazy: true})
		pgtest.Must(t, err)
		closeAfter(t, lazy)
		_, err = lazy.TryAcquire(t.Context(), "x")
		matches(t, err, errors.ErrUnsupported)
		if n := pgtest.One[int64](t, dsn, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"); n != 0 {
			t.Errorf("%s: %d locks are left on the pooler's connections", mode, n)
		}
		if errors.Is(err, pgmutex.ErrHeld) || errors.Is(err, pgmutex.ErrUnknown) {
			t.Errorf("a refusal looks like something else: %v", err)
		}
	}
}

func TestSessionPoolerThatIsVouchedFor(t *testing.T) {
	server := pgtest.Shared(t)
	dsn := server.Database(t)
	bouncer := pgtest.NewBouncer(t, server, "session", pgtest.BouncerOptions{PoolSize: 5})
	a := openWith(t, bouncer.DSN(dsn), &advisory.Options{DirectSession: true}, &pgmutex.Options{HolderID: "a"})
	b := openWith(t, bouncer.DSN(dsn), &advisory.Options{DirectSession: true}, &pgmutex.Options{HolderID: "b"})
	h := take(t, a, "x")
	mustBusy(t, b, "x")
	mustBusy(t, open(t, dsn, "c", pgmutex.Options{}), "x")
	pgtest.Must(t, h.Heartbeat(t.Context()))
	pgtest.Must(t, h.Release(t.Context()))
	take(t, b, "x")
}

// TestFalseVoucher: a voucher for a pooler that does pass connections on is found
// out when another backend answers.
func TestFalseVoucher(t *testing.T) {
	server := pgtest.Shared(t)
	dsn := server.Database(t)
	bouncer := pgtest.NewBouncer(t, server, "transaction", pgtest.BouncerOptions{PoolSize: 2})
	c := openWith(t, bouncer.DSN(dsn), &advisory.Options{DirectSession: true}, &pgmutex.Options{HolderID: "a", StaleAfter: 10 * time.Minute})
	h := take(t, c, "x")
	// Somebody else keeps the backend that the lock is on.
	other := pgtest.Conn(t, bouncer.DSN(pgtest.With(dsn, "default_query_exec_mode", "simple_protocol")))
	tx, err := other.Begin(t.Context())
	pgtest.Must(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	if got := pgtest.One[int32](t, tx, "SELECT pg_backend_pid()"); got != holderOf(t, dsn, "x") {
		t.Fatalf("the pooler gave out another backend, %d", got)
	}
	_ = h.Heartbeat(t.Context())
	after(t, h.Context().Done(), "the hold to end")
	matches(t, h.Err(), pgmutex.ErrLost)
}

func TestStandbyIsRefused(t *testing.T) {
	server := pgtest.New(t, pgtest.Options{})
	dsn := server.Database(t)
	standby := server.Standby(t, "standby")
	config, err := pgx.ParseConfig(dsn)
	pgtest.Must(t, err)
	refused(t, standby.DSN(config.Database, pgtest.Superuser), nil, "standby", "primary")
}

// TestServerWithoutLocks: a server whose functions exist and do nothing.
func TestServerWithoutLocks(t *testing.T) {
	server := pgtest.New(t, pgtest.Options{Settings: map[string]string{"allow_system_table_mods": "on"}})
	dsn := server.Database(t)
	pgtest.Exec(t, dsn, `CREATE OR REPLACE FUNCTION pg_catalog.pg_try_advisory_lock_shared(int4, int4) RETURNS bool
		LANGUAGE sql AS 'SELECT true'`)
	refused(t, dsn, nil, "no session advisory locks", "lease engine")
	pgtest.Exec(t, dsn, `ALTER FUNCTION pg_catalog.pg_try_advisory_lock_shared(int4, int4) RENAME TO gone`)
	refused(t, dsn, nil, "no session advisory locks", "lease engine")
}

func TestSQLSources(t *testing.T) {
	dsn := pgtest.Shared(t).Database(t)
	_, err := advisory.Open(t.Context(), foreignDB(t, dsn), nil)
	matches(t, err, errors.ErrUnsupported)
	if err == nil || !strings.Contains(err.Error(), "DirectSession") {
		t.Errorf("no way out: %v", err)
	}
	config, err := pgx.ParseConfig(dsn)
	pgtest.Must(t, err)
	one := stdlib.OpenDB(*config)
	defer func() { _ = one.Close() }()
	one.SetMaxOpenConns(1)
	if _, err := advisory.Open(t.Context(), one, nil); err == nil {
		t.Error("a *sql.DB of one connection was accepted")
	}

	db := stdlib.OpenDB(*config)
	defer func() { _ = db.Close() }()
	c := open(t, db, "a", pgmutex.Options{})
	h := take(t, c, "x")
	if n := db.Stats().OpenConnections; n != 1 {
		t.Errorf("%d connections are borrowed", n)
	}
	pgtest.Must(t, h.Release(t.Context()))
	pgtest.Must(t, c.Close(t.Context()))
	// It is not given back with our settings on it.
	if n := db.Stats().OpenConnections; n != 0 {
		t.Errorf("%d connections are left", n)
	}
}

func TestUnreachable(t *testing.T) {
	_, err := advisory.Open(t.Context(), "postgres://u:hunter2@127.0.0.1:1/db", nil)
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
	if _, err := advisory.New("postgres://u:hunter2@/%zz", nil); err == nil || strings.Contains(fmt.Sprint(err), "hunter2") {
		t.Errorf("got %v", err)
	}
	if _, err := advisory.New("", &advisory.Options{Table: "a.b.c"}); err == nil || !strings.Contains(err.Error(), "Table") {
		t.Errorf("got %v", err)
	}
}
