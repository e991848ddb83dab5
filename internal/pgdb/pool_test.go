package pgdb

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// tracer counts what it is shown.
type tracer struct{ queries atomic.Int32 }

func (r *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	r.queries.Add(1)
	return ctx
}
func (r *tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A pool is a recipe: nothing is taken from it, its hooks for making connections
// are used and those for lending them are not.
func TestPoolIsARecipe(t *testing.T) {
	dsn := fresh(t)
	var before, after, notices, lent atomic.Int32
	trace := &tracer{}
	pool := newPool(t, dsn, func(c *pgxpool.Config) {
		c.MaxConns = 1
		c.BeforeConnect = func(_ context.Context, cc *pgx.ConnConfig) error {
			before.Add(1)
			cc.RuntimeParams["application_name"] = "from the hook"
			return nil
		}
		c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			after.Add(1)
			_, err := conn.Exec(ctx, "SELECT set_config('pgmutex.hook', 'yes', false), set_config('lock_timeout', '1h', false)")
			return err
		}
		c.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) { lent.Add(1); return true, nil }
		c.AfterRelease = func(*pgx.Conn) bool { lent.Add(1); return true }
		c.ConnConfig.Tracer = trace
		c.ConnConfig.OnNotice = func(*pgconn.PgConn, *pgconn.Notice) { notices.Add(1) }
	})
	// All that the application has is in use.
	conn, err := pool.Acquire(t.Context())
	pgtest.Must(t, err)
	defer conn.Release()
	before.Store(0)
	after.Store(0)
	lent.Store(0)
	trace.queries.Store(0)
	acquired := pool.Stat().AcquireCount()

	db := open(t, pool, Options{})
	for _, lane := range []Lane{Work, Keep} {
		if got := one[string](t, db, lane, "SELECT current_setting('pgmutex.hook')"); got != "yes" {
			t.Errorf("AfterConnect left %q", got)
		}
		if got := one[string](t, db, lane, "SELECT current_setting('lock_timeout')"); got != "100ms" {
			t.Errorf("lock_timeout = %q", got)
		}
		if got := one[string](t, db, lane, "SELECT current_setting('application_name')"); got != "from the hook" {
			t.Errorf("application_name = %q", got)
		}
	}
	pgtest.Must(t, db.Run(t.Context(), Work, st("DO $$ BEGIN RAISE NOTICE 'hello'; END $$"), nil, nil))
	shut(t, db)
	if before.Load() != 2 || after.Load() != 2 {
		t.Errorf("BeforeConnect %d, AfterConnect %d times, want 2", before.Load(), after.Load())
	}
	if notices.Load() == 0 {
		t.Error("the application's OnNotice was not called")
	}
	if lent.Load() != 0 || trace.queries.Load() != 0 {
		t.Errorf("hooks for lending were called %d times, the tracer %d", lent.Load(), trace.queries.Load())
	}
	if got := pool.Stat().AcquireCount(); got != acquired {
		t.Errorf("%d connections were taken from the pool", got-acquired)
	}
	if pool.Stat().AcquiredConns() != 1 || pool.Config().ConnConfig.Tracer != trace || pool.Config().MaxConns != 1 {
		t.Error("the pool was changed")
	}
}

func TestPoolHooksFail(t *testing.T) {
	dsn := fresh(t)
	stop := errors.New("stop")
	pool := newPool(t, dsn, func(c *pgxpool.Config) {
		c.BeforeConnect = func(context.Context, *pgx.ConnConfig) error { return stop }
	})
	err := open(t, pool, Options{}).Check(t.Context())
	wantIs(t, err, stop)
	wantClass(t, err, NotSent)

	pool = newPool(t, dsn, func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["application_name"] = "hook fails"
		c.AfterConnect = func(context.Context, *pgx.Conn) error { return stop }
	})
	err = open(t, pool, Options{}).Check(t.Context())
	wantIs(t, err, stop)
	wantClass(t, err, NotSent)
	gone(t, dsn, "hook fails")

	pool = newPool(t, dsn, func(c *pgxpool.Config) {
		c.BeforeConnect = func(_ context.Context, cc *pgx.ConnConfig) error { cc.Host = "qq@zz"; return nil }
	})
	err = open(t, pool, Options{}).Check(t.Context())
	wantClass(t, err, NotSent)
	if found := leaks(allText(err), "qq@zz"); len(found) > 0 {
		t.Errorf("%q shows in %v", found, err)
	}

	if _, err := Open((*pgxpool.Pool)(nil), Options{}); err == nil {
		t.Error("a nil pool was accepted")
	}
}

// A host that is not there does not keep the next one from being asked, however
// little time there is.
func TestSecondHost(t *testing.T) {
	s := pgtest.Shared(t)
	silent := silentListener(t)
	dsn := "postgres://postgres@" + silent + "," + s.Addr() + "/postgres"
	db := open(t, dsn, Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
	defer cancel()
	pgtest.Must(t, db.Check(ctx))
	wantText(t, db.Address(), silent, s.Addr())
}

// The standby is passed over by whoever asks for a primary.
func TestTargetSessionAttrs(t *testing.T) {
	s := pgtest.New(t, pgtest.Options{})
	standby := s.Standby(t, "other")
	dsn := "postgres://postgres@" + standby.Addr() + "," + s.Addr() + "/postgres"
	db := open(t, dsn, Options{})
	pgtest.Must(t, db.Check(t.Context()))
	if !db.Facts().Standby {
		t.Error("Facts.Standby is not set")
	}
	wantClass(t, db.Run(t.Context(), Work, st("CREATE TABLE t ()"), nil, nil), ReadOnly)

	db = open(t, pgtest.With(dsn, "target_session_attrs", "read-write"), Options{})
	pgtest.Must(t, db.Run(t.Context(), Work, st("CREATE TABLE t ()"), nil, nil))
	if db.Facts().Standby {
		t.Error("Facts.Standby is set")
	}
}
