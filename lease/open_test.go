package lease_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/internal/pgtest"
	"github.com/pgmutex/pgmutex/lease"
)

func TestOpenAndGuard(t *testing.T) {
	dsn := pgtest.Shared(t).Database(t)
	pool, err := pgxpool.New(t.Context(), dsn)
	pgtest.Must(t, err)
	t.Cleanup(pool.Close)
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { _ = db.Close() })

	if locks, err := lease.Open(t.Context(), pool, nil); err == nil || locks != nil {
		t.Errorf("without tables: %v, %v", locks, err)
	}
	pgtest.Must(t, lease.Migrate(t.Context(), pool, nil))
	pgtest.Must(t, lease.Verify(t.Context(), db, nil))
	locks, err := lease.Open(t.Context(), pool, nil)
	pgtest.Must(t, err)

	tx, err := pool.Begin(t.Context())
	pgtest.Must(t, err)
	if err := lease.Guard(t.Context(), tx); !errors.Is(err, pgmutex.ErrNotHeld) {
		t.Errorf("under no hold: %v", err)
	}
	pgtest.Must(t, tx.Rollback(t.Context()))

	pgtest.Must(t, locks.Do(t.Context(), "job", func(ctx context.Context) error {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return lease.Guard(ctx, tx) })
		if err != nil {
			t.Errorf("pgx: %v", err)
		}
		if err := inSQL(ctx, db, lease.GuardSQL); err != nil {
			t.Errorf("database/sql: %v", err)
		}
		pgtest.Exec(t, pool, "UPDATE mutex_lock SET instance_id = 'somebody'")
		if err := inSQL(ctx, db, lease.GuardSQL); !errors.Is(err, pgmutex.ErrNotHeld) {
			t.Errorf("after a takeover: %v", err)
		}
		pgtest.Exec(t, pool, "UPDATE mutex_lock SET instance_id = promised_by")
		return nil
	}))
	pgtest.Must(t, locks.Close(t.Context()))
	pgtest.Must(t, pool.Ping(t.Context()))
}

func inSQL(ctx context.Context, db *sql.DB, do func(context.Context, *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	return do(ctx, tx)
}
