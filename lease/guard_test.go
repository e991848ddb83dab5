package lease

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

func TestGuardBlocksTakeoversWhileHeartbeatsPass(t *testing.T) {
	dsn := database(t, nil)
	c, rival := start(t, dsn, nil), start(t, dsn, nil)
	term := c.take(request("job"))
	tx := begin(t, dsn)
	pgtest.Must(t, c.Guard(t.Context(), term, execOn(tx)))
	pgtest.Must(t, c.Guard(t.Context(), term, execOn(tx))) // again: harmless

	if s := c.renew(term); s.Health != engine.Held {
		t.Errorf("renewal beside an open guard: %+v", s)
	}
	for _, s := range c.Renew(t.Context(), []engine.Term{term, c.take(request("other"))}) {
		if s.Health != engine.Held {
			t.Errorf("renewal in a batch: %+v", s)
		}
	}
	age(t, dsn, "job", time.Hour)
	if a := rival.busy(request("job")); a.Err != nil {
		t.Error(a.Err)
	}
	// Our own release waits in the background of the client.
	if r := c.release(term); r.Outcome != engine.Unconfirmed || r.Err == nil {
		t.Errorf("release beside an open guard: %+v", r)
	}
	seen, err := rival.Inspect(t.Context(), "job")
	pgtest.Must(t, err)
	if err := rival.ForceRelease(t.Context(), seen, engine.Force{By: "ops", Now: true}); err == nil {
		t.Error("a forced release went through an open guard")
	}
	pgtest.Must(t, tx.Commit(t.Context()))
	rival.take(request("job"))

	tx = begin(t, dsn)
	if err := c.Guard(t.Context(), term, execOn(tx)); !errors.Is(err, engine.ErrGone) {
		t.Errorf("guard by a lost term: %v", err)
	}
	pgtest.Must(t, tx.Rollback(t.Context()))
}

func TestGuardEndsWithASavepoint(t *testing.T) {
	// Not what anybody wants, but what the server does: the contract says so.
	dsn := database(t, nil)
	c, rival := start(t, dsn, nil), start(t, dsn, nil)
	term := c.take(request("job"))
	tx := begin(t, dsn)
	inner, err := tx.Begin(t.Context())
	pgtest.Must(t, err)
	pgtest.Must(t, c.Guard(t.Context(), term, execOn(inner)))
	pgtest.Must(t, inner.Rollback(t.Context()))
	age(t, dsn, "job", time.Hour)
	rival.take(request("job"))
	pgtest.Must(t, tx.Rollback(t.Context()))
}

func TestGuardUnderEveryIsolation(t *testing.T) {
	dsn := database(t, nil)
	c := start(t, dsn, nil)
	term := c.take(request("job"))
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		tx, err := pgtest.Conn(t, dsn).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
		pgtest.Must(t, err)
		pgtest.One[int32](t, tx, "SELECT 1") // the snapshot is older than the heartbeat
		c.renew(term)
		if err := c.Guard(t.Context(), term, execOn(tx)); err != nil {
			t.Errorf("%s: %v", level, err)
		}
		pgtest.Must(t, tx.Commit(t.Context()))
	}
}

// TestGuardHoldsAgainstPython tries the three forms in which a version of the
// Python package may take a stale lock over.
func TestGuardHoldsAgainstPython(t *testing.T) {
	for form, takeover := range pythonTakeovers {
		t.Run(form, func(t *testing.T) {
			dsn := database(t, nil)
			c := start(t, dsn, nil)
			term := c.take(request("job"))
			guarded := begin(t, dsn)
			pgtest.Must(t, c.Guard(t.Context(), term, execOn(guarded)))
			age(t, dsn, "job", time.Hour)

			python := begin(t, dsn)
			pgtest.Exec(t, python, "SET LOCAL lock_timeout = '50ms'")
			if _, err := takeover(t, python, "job", "python-1"); err == nil {
				t.Error("the takeover did not wait for the guarded transaction")
			}
			pgtest.Must(t, python.Rollback(t.Context()))
			pgtest.Must(t, guarded.Commit(t.Context()))

			python = begin(t, dsn)
			took, err := takeover(t, python, "job", "python-1")
			pgtest.Must(t, err)
			if !took {
				t.Fatal("the takeover failed")
			}
			pgtest.Must(t, python.Commit(t.Context()))
			late := begin(t, dsn)
			if err := c.Guard(t.Context(), term, execOn(late)); !errors.Is(err, engine.ErrGone) {
				t.Errorf("guard after the takeover: %v", err)
			}
			pgtest.Must(t, late.Rollback(t.Context()))
		})
	}
}
