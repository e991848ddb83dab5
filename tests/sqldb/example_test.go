package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"log"
	"os"

	_ "github.com/lib/pq"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/advisory"
	"github.com/pgmutex/pgmutex/lease"
)

// Leases work with any driver; waiters poll where it is not pgx. The advisory
// engine wants to be told that no pooler is in between, as it cannot see that.
func Example_libpq() {
	ctx := context.Background()
	db, err := sql.Open("postgres", os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	leases, err := lease.Open(ctx, db, nil) // refuses db.SetMaxOpenConns(1)
	if err != nil {
		log.Fatal(err)
	}
	defer leases.Close(ctx)

	if _, err := advisory.Open(ctx, db, nil); errors.Is(err, errors.ErrUnsupported) {
		log.Print(err)
	}
	engine, err := advisory.New(db, &advisory.Options{DirectSession: true})
	if err != nil {
		log.Fatal(err)
	}
	locks, err := pgmutex.New(ctx, engine, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)
}
