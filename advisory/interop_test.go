package advisory_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// TestForeignSessions is any other program that locks the same key.
func TestForeignSessions(t *testing.T) {
	dsn := pgtest.Shared(t).Database(t)
	c := open(t, dsn, "a", pgmutex.Options{PollInterval: 10 * time.Millisecond})
	other := pgtest.Conn(t, pgtest.With(dsn, "application_name", "other-program"))
	id := pgmutex.AdvisoryID("x")

	h := take(t, c, "x")
	if pgtest.One[bool](t, other, "SELECT pg_try_advisory_lock($1)", id) {
		t.Fatal("the other program got a lock that we hold")
	}
	pgtest.Must(t, h.Release(t.Context()))
	pgtest.Exec(t, other, "SELECT pg_advisory_lock($1)", id)
	_, err := c.TryAcquire(t.Context(), "x")
	var held *pgmutex.HeldError
	if !errors.As(err, &held) || held.Holder != "other-program" || held.Details["backend_pid"] == "" {
		t.Fatalf("want the other program to be named, got %#v (%v)", held, err)
	}

	// It wakes up nobody, so polling has to find it.
	granted := make(chan struct{})
	go func() {
		defer close(granted)
		if h, err = c.Acquire(t.Context(), "x"); err != nil {
			t.Error(err)
		}
	}()
	pgtest.WaitFor(t, "us to wait", func() bool {
		return pgtest.One[int64](t, dsn, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock' AND classid::bigint >= 2147483648") > 0
	})
	pgtest.Exec(t, other, "SELECT pg_advisory_unlock($1)", id)
	after(t, granted, "the lock that the other program gave back")

	// A statement that blocks stands in the server's own line and is served at once.
	blocked := make(chan struct{})
	go func() {
		defer close(blocked)
		pgtest.Exec(t, other, "SELECT pg_advisory_lock($1)", id)
	}()
	pgtest.WaitFor(t, "the other program to wait", func() bool { return locksOf(t, dsn, "x") == 2 })
	pgtest.Must(t, h.Release(t.Context()))
	after(t, blocked, "other-program to get the lock")
	mustBusy(t, c, "x")
}

// TestLookingWithoutRights: what a role may not see is missing, not an error; and
// it may not end the session either.
func TestLookingWithoutRights(t *testing.T) {
	server := pgtest.New(t, pgtest.Options{})
	dsn := server.Database(t)
	pgtest.Exec(t, dsn, "CREATE ROLE holder LOGIN PASSWORD 'p'; CREATE ROLE looker LOGIN PASSWORD 'p'")
	as := func(role string) string { return strings.Replace(dsn, pgtest.Superuser+"@", role+":p@", 1) }
	a, b := open(t, as("holder"), "a", pgmutex.Options{}), open(t, as("looker"), "b", pgmutex.Options{})
	h := take(t, a, "x")
	pgtest.Exec(t, pgtest.Conn(t, dsn), "SELECT pg_advisory_lock(42), pg_advisory_lock(1, 2)")

	seen, err := b.Inspect(t.Context(), "x")
	pgtest.Must(t, err)
	if seen.State != pgmutex.StateHeld || seen.Holder != "a" || seen.Details["session_start"] != "" || seen.Details["role"] != "holder" {
		t.Errorf("status %+v", seen)
	}
	ids := map[int64]string{}
	for s, err := range b.List(t.Context()) {
		pgtest.Must(t, err)
		ids[s.ID] = s.Name
	}
	if len(ids) != 2 || ids[pgmutex.AdvisoryID("x")] != "x" || ids[42] != "" {
		t.Errorf("locks %v", ids)
	}
	err = b.ForceRelease(t.Context(), seen, &pgmutex.ForceOptions{Now: true})
	matches(t, err, fs.ErrPermission)
	pgtest.Must(t, h.Heartbeat(t.Context()))

	// With the right it works, at the session that was shown and no other.
	root := open(t, dsn, "root", pgmutex.Options{})
	seen, err = root.Inspect(t.Context(), "x")
	pgtest.Must(t, err)
	if seen.Details["session_start"] == "" {
		t.Errorf("status %+v", seen)
	}
	pgtest.Must(t, h.Release(t.Context()))
	matches(t, root.ForceRelease(t.Context(), seen, &pgmutex.ForceOptions{Now: true}), pgmutex.ErrNotHeld)
	// The process is the same and holds another key.
	take(t, a, "y")
	matches(t, root.ForceRelease(t.Context(), seen, &pgmutex.ForceOptions{Now: true}), pgmutex.ErrNotHeld)
	if !a.IsHeld("y") {
		t.Error("a session was ended for a lock that it does not hold")
	}
}

// TestIndexConcurrently: neither a hold nor a wait keeps a snapshot or a
// transaction open, which CREATE INDEX CONCURRENTLY would wait for.
func TestIndexConcurrently(t *testing.T) {
	dsn := pgtest.Shared(t).Database(t)
	a, b := open(t, dsn, "a", pgmutex.Options{}), open(t, dsn, "b", pgmutex.Options{})
	h := take(t, a, "migration")
	waiting := make(chan error, 1)
	go func() {
		h, err := b.Acquire(t.Context(), "migration")
		if err == nil {
			err = h.Release(t.Context())
		}
		waiting <- err
	}()
	pgtest.WaitFor(t, "b to wait", func() bool {
		return pgtest.One[int64](t, dsn, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock' AND classid::bigint >= 2147483648") > 0
	})
	conn := pgtest.Conn(t, dsn)
	pgtest.Exec(t, conn, "CREATE TABLE things (n int)")
	_, err := conn.Exec(t.Context(), "CREATE INDEX CONCURRENTLY ON things (n)", pgx.QueryExecModeSimpleProtocol)
	pgtest.Must(t, err)
	pgtest.Must(t, h.Release(t.Context()))
	pgtest.Must(t, <-waiting)
}
