package advisory_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/advisory"
	"github.com/pgmutex/pgmutex/internal/pgtest"
	"github.com/pgmutex/pgmutex/lease"
)

// TestTokensAfterAFailover: the meta row names another timeline than the server's,
// as after the promotion of a standby that had missed the last tokens.
func TestTokensAfterAFailover(t *testing.T) {
	dsn := pgtest.Shared(t).Database(t)
	pgtest.Must(t, lease.Migrate(t.Context(), dsn, nil))
	own := &advisory.Options{Table: "public.mutex_lock"}
	before := take(t, openWith(t, dsn, own, nil), "x").Token()
	if before <= 0 || before >= 1<<44 {
		t.Errorf("the first token is %d", before)
	}
	pgtest.Exec(t, dsn, "UPDATE mutex_lock_meta SET timeline = timeline - 1")
	token := int64(0)
	for range 2 { // once for the timeline, and not again for each session
		h := take(t, openWith(t, dsn, own, nil), "y")
		if h.Token() <= token || h.Token() <= before || h.Token()>>44 != 1 {
			t.Errorf("token %d after %d", h.Token(), max(token, before))
		}
		token = h.Token()
		pgtest.Must(t, h.Release(t.Context()))
	}
}

func TestTokensNeedTheTable(t *testing.T) {
	dsn := pgtest.Shared(t).Database(t)
	eng, err := advisory.New(dsn, &advisory.Options{Table: "public.mutex_lock"})
	pgtest.Must(t, err)
	if !eng.Describe().Tokens {
		t.Error("it does not claim tokens")
	}
	if _, err := pgmutex.New(t.Context(), eng, nil); err == nil || !strings.Contains(err.Error(), "Table") {
		t.Errorf("got %v", err)
	}
	h := take(t, open(t, dsn, "a", pgmutex.Options{}), "x")
	if h.Token() != 0 {
		t.Errorf("token %d without a table", h.Token())
	}
	matches(t, h.Guard(t.Context(), nil), errors.ErrUnsupported)
}

// TestTryThatFails: a server's error in a try leaves no lock behind and costs no
// other hold.
func TestTryThatFails(t *testing.T) {
	dsn := pgtest.Shared(t).Database(t)
	pgtest.Must(t, lease.Migrate(t.Context(), dsn, nil))
	c := openWith(t, dsn, &advisory.Options{Table: "public.mutex_lock"}, nil)
	h := take(t, c, "x")
	pgtest.Exec(t, dsn, "ALTER SEQUENCE mutex_lock_token RENAME TO elsewhere")
	for range 2 {
		if _, err := c.TryAcquire(t.Context(), "y"); err == nil || errors.Is(err, pgmutex.ErrHeld) || errors.Is(err, pgmutex.ErrUnknown) {
			t.Errorf("got %v", err)
		}
	}
	if n := locksOf(t, dsn, "y"); n != 0 {
		t.Errorf("%d locks are left behind", n)
	}
	pgtest.Must(t, h.Heartbeat(t.Context()))
	pgtest.Exec(t, dsn, "ALTER SEQUENCE elsewhere RENAME TO mutex_lock_token")
	take(t, c, "y")
}

// TestNotifyThatFails: a release stands, whatever becomes of its notification.
func TestNotifyThatFails(t *testing.T) {
	server := pgtest.New(t, pgtest.Options{Settings: map[string]string{"allow_system_table_mods": "on"}})
	dsn := server.Database(t)
	a, b := open(t, dsn, "a", pgmutex.Options{}), open(t, dsn, "b", pgmutex.Options{})
	other := take(t, a, "other")
	pgtest.Exec(t, dsn, "ALTER FUNCTION pg_catalog.pg_notify(text, text) RENAME TO gone")
	h := take(t, a, "x")
	granted := make(chan error, 1)
	go func() {
		_, err := b.Acquire(t.Context(), "x")
		granted <- err
	}()
	pgtest.WaitFor(t, "b to wait", func() bool { return marks(t, dsn) == 1 })
	pgtest.Must(t, h.Release(t.Context()))
	pgtest.Must(t, other.Heartbeat(t.Context()))
	pgtest.Must(t, <-granted) // by its poll
}

// TestUnlockThatIsRefused: a server's error in the look at the waiters' mark is no
// doubt about the lock.
func TestUnlockThatIsRefused(t *testing.T) {
	server := pgtest.New(t, pgtest.Options{Settings: map[string]string{"allow_system_table_mods": "on"}})
	dsn := server.Database(t)
	a := open(t, dsn, "a", pgmutex.Options{})
	x, y := take(t, a, "x"), take(t, a, "y")
	pgtest.Exec(t, dsn, `CREATE OR REPLACE FUNCTION pg_catalog.pg_try_advisory_xact_lock(bigint) RETURNS bool
		LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION USING ERRCODE = ''53200''; END'`)
	pgtest.Must(t, x.Release(t.Context()))
	pgtest.Must(t, y.Heartbeat(t.Context()))
	if n := locksOf(t, dsn, "x"); n != 0 {
		t.Errorf("%d locks are left", n)
	}
	_ = take(t, a, "x")
}
