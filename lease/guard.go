package lease

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pgmutex/pgmutex"
)

// Guard ties tx, a transaction in the database of the lock table, to the hold
// that ctx runs under: the context of Do, Run and Hold.Context carries one. When
// it returns nil, nobody can take the lock over until tx ends, so that what tx
// writes is exclusive, whatever the clocks do.
//
// Its error matches pgmutex.ErrNotHeld when ctx runs under no hold, or when the
// hold has ended. Roll back then, whatever the error. Call it at the top level of
// the transaction: a rollback to an earlier savepoint undoes it. It is
// pgmutex.Hold.Guard for pgx; calling it twice is harmless.
func Guard(ctx context.Context, tx pgx.Tx) error {
	return guard(ctx, func(ctx context.Context, query string, args ...any) (int64, error) {
		tag, err := tx.Exec(ctx, query, args...)
		return tag.RowsAffected(), err
	})
}

// GuardSQL is [Guard] for database/sql with any PostgreSQL driver.
func GuardSQL(ctx context.Context, tx *sql.Tx) error {
	return guard(ctx, func(ctx context.Context, query string, args ...any) (rows int64, err error) {
		// Not every driver counts the rows of a SELECT that is executed.
		result, err := tx.QueryContext(ctx, query, args...)
		if err != nil {
			return 0, err
		}
		defer result.Close()
		for result.Next() {
			rows++
		}
		return rows, result.Err()
	})
}

func guard(ctx context.Context, exec pgmutex.Exec) error {
	hold, ok := pgmutex.FromContext(ctx)
	if !ok {
		return fmt.Errorf("pgmutex: guard: the context runs under no hold: %w", pgmutex.ErrNotHeld)
	}
	return hold.Guard(ctx, exec)
}
