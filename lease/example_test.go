package lease_test

import (
	"context"
	"database/sql"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/lease"
)

// Work in the database of the lock table is exclusive without any assumption
// about clocks when its transaction is guarded.
func ExampleGuard() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	locks, err := lease.Open(ctx, pool, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)

	err = locks.Do(ctx, "balances", func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := lease.Guard(ctx, tx); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "UPDATE balances SET amount = amount * 1.01")
			return err
		})
	})
	if err != nil {
		log.Fatal(err)
	}
}

// The same with database/sql.
func ExampleGuardSQL() {
	ctx := context.Background()
	var db *sql.DB // with any PostgreSQL driver
	var locks *pgmutex.Client
	err := locks.Do(ctx, "balances", func(ctx context.Context) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := lease.GuardSQL(ctx, tx); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE balances SET amount = amount * 1.01"); err != nil {
			return err
		}
		return tx.Commit()
	})
	if err != nil {
		log.Fatal(err)
	}
}

// The application's pool is only a recipe: our connections are our own, so its
// load never starves a heartbeat, and it may be closed before or after us.
func ExampleOpen() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if err := lease.Migrate(ctx, pool, nil); err != nil {
		log.Fatal(err)
	}
	locks, err := lease.Open(ctx, pool, &pgmutex.Options{StaleAfter: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)
}
