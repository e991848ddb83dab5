package goosetest

import (
	"context"
	"database/sql"
	"log"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	pgmutexgoose "github.com/pgmutex/pgmutex/adapters/goose"
	"github.com/pgmutex/pgmutex/lease"
)

// Every instance migrates at its start; one does it, the others wait.
func Example() {
	ctx := context.Background()
	locks, err := lease.Open(ctx, os.Getenv("DATABASE_URL"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)

	provider, err := goose.NewProvider(goose.DialectPostgres, openExample(ctx), os.DirFS("migrations"),
		goose.WithLocker(pgmutexgoose.NewLocker(locks, "app-migrations")))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := provider.Up(ctx); err != nil {
		log.Fatal(err)
	}
}

// The lock is one of the session that migrates.
func Example_sessionLocker() {
	ctx := context.Background()
	provider, err := goose.NewProvider(goose.DialectPostgres, openExample(ctx), os.DirFS("migrations"),
		goose.WithSessionLocker(pgmutexgoose.NewSessionLocker("app-migrations")))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := provider.Up(ctx); err != nil {
		log.Fatal(err)
	}
}

// Without the adapter: the loss of the lock stops the migration.
func Example_loss() {
	ctx := context.Background()
	locks, err := lease.Open(ctx, os.Getenv("DATABASE_URL"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)

	provider, err := goose.NewProvider(goose.DialectPostgres, openExample(ctx), os.DirFS("migrations"))
	if err != nil {
		log.Fatal(err)
	}
	err = locks.Do(ctx, "app-migrations", func(ctx context.Context) error {
		_, err := provider.Up(ctx) // reads what is left to do only now
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}

func openExample(ctx context.Context) *sql.DB {
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	return stdlib.OpenDBFromPool(pool)
}
