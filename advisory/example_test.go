package advisory_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/advisory"
)

func ExampleOpen() {
	ctx := context.Background()
	locks, err := advisory.Open(ctx, os.Getenv("DATABASE_URL"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)

	err = locks.TryDo(ctx, "nightly-report", func(ctx context.Context) error {
		fmt.Println("one of us at a time")
		return nil
	})
	if errors.Is(err, pgmutex.ErrHeld) {
		fmt.Println("somebody else is at it")
	}
}

// A pooler in session mode is vouched for.
func ExampleNew() {
	ctx := context.Background()
	eng, err := advisory.New(os.Getenv("DATABASE_URL"), &advisory.Options{DirectSession: true})
	if err != nil {
		log.Fatal(err)
	}
	locks, err := pgmutex.New(ctx, eng, &pgmutex.Options{StaleAfter: 30 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)
}

// A lock for the length of a transaction needs no client and works behind every
// pooler.
func ExampleTryTx() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := advisory.TryTx(ctx, tx, "balances", nil); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "UPDATE balances SET amount = amount * 1.01")
		return err
	})
	if errors.Is(err, pgmutex.ErrHeld) {
		fmt.Println("somebody else is at it")
	}
}
