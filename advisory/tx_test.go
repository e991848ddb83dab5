package advisory_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/advisory"
	"github.com/pgmutex/pgmutex/internal/faultconn"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

func sqlDB(t testing.TB, dsn string) *sql.DB {
	config, err := pgx.ParseConfig(dsn)
	pgtest.Must(t, err)
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestTryTx(t *testing.T) {
	server := pgtest.Shared(t)
	dsn := server.Database(t)
	c := open(t, dsn, "a", pgmutex.Options{Namespace: "ns"})
	bouncer := pgtest.NewBouncer(t, server, "transaction", pgtest.BouncerOptions{})
	simple := pgtest.With(dsn, "default_query_exec_mode", "simple_protocol")
	in := &advisory.NameOptions{Namespace: "ns"}
	for where, dsn := range map[string]string{"direct": dsn, "transaction pooler": bouncer.DSN(simple)} {
		for _, end := range []string{"commit", "rollback"} {
			conn := pgtest.Conn(t, dsn)
			tx, err := conn.Begin(t.Context())
			pgtest.Must(t, err)
			info, err := advisory.TryTx(t.Context(), tx, "x", in)
			pgtest.Must(t, err)
			if info.Name != "x" || info.ID != pgmutex.AdvisoryID("ns/x") || info.AcquiredAt.IsZero() || info.Engine != "advisory" {
				t.Errorf("%s: %+v", where, info)
			}
			mustBusy(t, c, "x")
			if end == "commit" {
				pgtest.Must(t, tx.Commit(t.Context()))
			} else {
				pgtest.Must(t, tx.Rollback(t.Context()))
			}
			h := take(t, c, "x")
			tx, err = conn.Begin(t.Context())
			pgtest.Must(t, err)
			_, err = advisory.TryTx(t.Context(), tx, "x", in)
			var acquire *pgmutex.AcquireError
			var held *pgmutex.HeldError
			if !errors.As(err, &acquire) || !errors.As(err, &held) || acquire.Name != "x" {
				t.Errorf("%s: want an *AcquireError with a *HeldError, got %v", where, err)
			}
			pgtest.One[int32](t, tx, "SELECT 1") // the transaction goes on
			pgtest.Must(t, tx.Rollback(t.Context()))
			pgtest.Must(t, h.Release(t.Context()))
		}
	}
}

func TestTrySQLTx(t *testing.T) {
	dsn := pgtest.Shared(t).Database(t)
	c := open(t, dsn, "a", pgmutex.Options{})
	for driver, db := range map[string]*sql.DB{"pgx": sqlDB(t, dsn), "another": foreignDB(t, dsn)} {
		tx, err := db.BeginTx(t.Context(), nil)
		pgtest.Must(t, err)
		_, err = advisory.TrySQLTx(t.Context(), tx, "x", nil)
		pgtest.Must(t, err)
		mustBusy(t, c, "x")
		pgtest.Must(t, tx.Rollback())
		h, err := c.With(pgmutex.AcquireOptions{Shared: true}).TryAcquire(t.Context(), "x")
		pgtest.Must(t, err)
		tx, err = db.BeginTx(t.Context(), nil)
		pgtest.Must(t, err)
		_, err = advisory.TrySQLTx(t.Context(), tx, "x", nil)
		matches(t, err, pgmutex.ErrHeld)
		info, err := advisory.TrySQLTx(t.Context(), tx, "x", &advisory.NameOptions{Shared: true})
		if err != nil || !info.Shared {
			t.Errorf("%s: %+v, %v", driver, info, err)
		}
		pgtest.Must(t, tx.Commit())
		pgtest.Must(t, h.Release(t.Context()))
	}
}

func TestNamesWithoutAClient(t *testing.T) {
	dsn := pgtest.Shared(t).Database(t)
	tx, err := pgtest.Conn(t, dsn).Begin(t.Context())
	pgtest.Must(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	for _, name := range []string{"", "a\x00", "line\n", "\xff", strings.Repeat("x", 1025)} {
		if _, err := advisory.TryTx(t.Context(), tx, name, nil); err == nil || errors.Is(err, pgmutex.ErrHeld) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := advisory.TryTx(t.Context(), tx, "x", &advisory.NameOptions{Namespace: "a/b"}); err == nil {
		t.Error("a namespace with a slash")
	}
	_, err = advisory.TryTx(t.Context(), tx, strings.Repeat("x", 1024), nil)
	pgtest.Must(t, err)
}

func TestConn(t *testing.T) {
	dsn := pgtest.Shared(t).Database(t)
	c := open(t, dsn, "a", pgmutex.Options{})
	db := sqlDB(t, dsn)
	conn, err := db.Conn(t.Context())
	pgtest.Must(t, err)
	defer func() { _ = conn.Close() }()

	matches(t, advisory.ReleaseConn(t.Context(), conn, "x", nil), pgmutex.ErrNotHeld)
	info, err := advisory.AcquireConn(t.Context(), conn, "x", nil)
	pgtest.Must(t, err)
	if info.ID != pgmutex.AdvisoryID("x") {
		t.Errorf("%+v", info)
	}
	mustBusy(t, c, "x")
	_, err = advisory.AcquireConn(t.Context(), conn, "x", nil) // at once, not for ever
	matches(t, err, pgmutex.ErrHeld)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	pgtest.Must(t, advisory.ReleaseConn(ended, conn, "x", nil))
	if n := locksOf(t, dsn, "x"); n != 0 {
		t.Errorf("%d locks are left", n)
	}

	h := take(t, c, "x")
	waiting, stop := context.WithCancelCause(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := advisory.AcquireConn(waiting, conn, "x", nil)
		result <- err
	}()
	why := errors.New("no longer wanted")
	stop(why)
	err = <-result
	matches(t, err, why)
	if err := conn.PingContext(t.Context()); err != nil {
		t.Errorf("the connection was lost with the wait: %v", err)
	}
	go func() {
		_, err := advisory.AcquireConn(t.Context(), conn, "x", nil)
		result <- err
	}()
	pgtest.Must(t, h.Release(t.Context()))
	pgtest.Must(t, <-result)
	mustBusy(t, c, "x")
	pgtest.Must(t, advisory.ReleaseConn(t.Context(), conn, "x", nil))
	take(t, c, "x")
}

func TestConnBehindAPooler(t *testing.T) {
	server := pgtest.Shared(t)
	dsn := server.Database(t)
	bouncer := pgtest.NewBouncer(t, server, "transaction", pgtest.BouncerOptions{})
	db := sqlDB(t, bouncer.DSN(pgtest.With(dsn, "default_query_exec_mode", "simple_protocol")))
	conn, err := db.Conn(t.Context())
	pgtest.Must(t, err)
	defer func() { _ = conn.Close() }()
	_, err = advisory.AcquireConn(t.Context(), conn, "x", nil)
	matches(t, err, errors.ErrUnsupported)

	blind, err := foreignDB(t, dsn).Conn(t.Context())
	pgtest.Must(t, err)
	defer func() { _ = blind.Close() }()
	_, err = advisory.AcquireConn(t.Context(), blind, "x", nil)
	matches(t, err, errors.ErrUnsupported)
	_, err = advisory.AcquireConn(t.Context(), blind, "x", &advisory.NameOptions{DirectSession: true})
	pgtest.Must(t, err)
	pgtest.Must(t, advisory.ReleaseConn(t.Context(), blind, "x", nil))
}

// TestConnIsUsableWhenTheCallerLeaves: the end of the context is not that of the
// connection, not even during the first look at it.
func TestConnIsUsableWhenTheCallerLeaves(t *testing.T) {
	dsn := pgtest.Shared(t).Database(t)
	proxy := faultconn.New(t, pgtest.Shared(t).Addr())
	conn, err := sqlDB(t, proxy.DSN(dsn)).Conn(t.Context())
	pgtest.Must(t, err)
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	before := proxy.Counts()
	proxy.HoldReplies()
	result := make(chan error, 1)
	go func() {
		_, err := advisory.AcquireConn(ctx, conn, "x", nil)
		result <- err
	}()
	pgtest.WaitFor(t, "the first question", func() bool { return proxy.Counts().Since(before).RoundTrips() == 1 })
	cancel()
	proxy.ReleaseReplies()
	matches(t, <-result, context.Canceled)
	pgtest.Must(t, conn.PingContext(t.Context()))
	if n := locksOf(t, dsn, "x"); n != 0 {
		t.Errorf("%d locks are left", n)
	}
}
