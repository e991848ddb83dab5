package advisory_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/advisory"
	"github.com/pgmutex/pgmutex/internal/pgdb"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// open returns a client with that holder's label, closed with the test.
func open[S pgdb.Source](t testing.TB, source S, holder string, opts pgmutex.Options) *pgmutex.Client {
	t.Helper()
	opts.HolderID = holder
	c, err := advisory.Open(t.Context(), source, &opts)
	pgtest.Must(t, err)
	closeAfter(t, c)
	return c
}

// openWith is open with settings of the engine's own.
func openWith[S pgdb.Source](t testing.TB, source S, own *advisory.Options, opts *pgmutex.Options) *pgmutex.Client {
	t.Helper()
	eng, err := advisory.New(source, own)
	pgtest.Must(t, err)
	c, err := pgmutex.New(t.Context(), eng, opts)
	pgtest.Must(t, err)
	closeAfter(t, c)
	return c
}

func closeAfter(t testing.TB, c *pgmutex.Client) {
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = c.Close(ctx)
	})
}

func take(t testing.TB, c *pgmutex.Client, name string) *pgmutex.Hold {
	t.Helper()
	h, err := c.TryAcquire(t.Context(), name)
	pgtest.Must(t, err)
	return h
}

func mustBusy(t testing.TB, c *pgmutex.Client, name string) {
	t.Helper()
	if _, err := c.TryAcquire(t.Context(), name); !errors.Is(err, pgmutex.ErrHeld) {
		t.Fatalf("want %q to be held, got %v", name, err)
	}
}

func matches(t testing.TB, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("want an error matching %q, got %v", target, err)
		}
	}
}

// after waits for a channel to be closed.
func after(t testing.TB, done <-chan struct{}, what string) {
	t.Helper()
	timer := time.NewTimer(30 * time.Second)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		t.Fatalf("waited in vain for: %s", what)
	}
}

// locksOf counts the locks of a name's key in pg_locks, waited for included.
func locksOf(t testing.TB, dsn, name string) int64 {
	t.Helper()
	return pgtest.One[int64](t, dsn, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND ((classid::bigint << 32) | objid::bigint) = $1`, pgmutex.AdvisoryID(name))
}

// holderOf is the backend that holds a name.
func holderOf(t testing.TB, dsn, name string) int32 {
	t.Helper()
	return pgtest.One[int32](t, dsn, `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND ((classid::bigint << 32) | objid::bigint) = $1`, pgmutex.AdvisoryID(name))
}

// sessions counts the sessions in the database of those that are not the tests' own.
func sessions(t testing.TB, dsn string) int64 {
	t.Helper()
	return pgtest.One[int64](t, dsn, `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name LIKE 'pgmutex%' AND pid <> pg_backend_pid()`)
}
