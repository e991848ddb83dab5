package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/pgdb"
	"github.com/pgmutex/pgmutex/internal/schema"
)

// strayCancels is how often a statement is repeated that was canceled while its
// caller was still waiting: behind a pooler, the cancel request of one client may
// reach the statement of another.
const strayCancels = 2

// query runs a statement and collects its rows. A transaction that the server
// broke off for the sake of others (40001, 40P01) is repeated until ctx ends:
// nothing of it happened.
func query[T any](ctx context.Context, db *pgdb.DB, lane pgdb.Lane, st pgdb.Statement, args []any,
	scan func(pgdb.Row) (T, error),
) ([]T, error) {
	for attempt := 0; ; attempt++ {
		var rows []T
		err := db.Run(ctx, lane, st, args, func(row pgdb.Row) error {
			v, err := scan(row)
			if err == nil {
				rows = append(rows, v)
			}
			return err
		})
		if err == nil {
			return rows, nil
		}
		class := pgdb.Classify(err)
		again := class == pgdb.Retry || class == pgdb.Canceled && attempt < strayCancels
		if !again || ctx.Err() != nil || !pause(ctx, attempt) {
			return nil, err
		}
	}
}

// single runs a statement that returns at most one row.
func single[T any](ctx context.Context, db *pgdb.DB, lane pgdb.Lane, st pgdb.Statement, args []any,
	scan func(pgdb.Row) (T, error),
) (value T, found bool, err error) {
	rows, err := query(ctx, db, lane, st, args, scan)
	if err != nil || len(rows) == 0 {
		return value, false, err
	}
	return rows[0], true, nil
}

// pause waits longer with each attempt, up to 50 ms, and reports whether ctx
// lasts still.
func pause(ctx context.Context, attempt int) bool {
	longest := min(50*time.Millisecond, time.Millisecond<<min(attempt, 10))
	t := time.NewTimer(rand.N(longest) + 1)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// errReadOnly is what a standby, or a database that was made read-only, answers.
var errReadOnly = errors.New("the server is read-only (a standby?)")

// explain turns the server's refusal into something that can be acted upon.
func (s *store) explain(ctx context.Context, db *pgdb.DB, err error) error {
	switch pgdb.Classify(err) {
	case pgdb.ReadOnly:
		return fmt.Errorf("%w: %w", errReadOnly, err)
	case pgdb.Denied, pgdb.Undefined:
		if problem := schema.Missing(ctx, db, s.set.names); problem != nil {
			return fmt.Errorf("%w (%w)", problem, err)
		}
	}
	return err
}

// refusal judges an error of an attempt to take a lock.
func (s *store) refusal(ctx context.Context, db *pgdb.DB, err error) engine.Answer {
	switch pgdb.Classify(err) {
	case pgdb.RowLocked, pgdb.Duplicate:
		// Somebody else is writing that very row.
		return engine.Answer{Outcome: engine.Busy}
	case pgdb.NotSent, pgdb.Retry, pgdb.Canceled, pgdb.Full:
		return engine.Answer{Outcome: engine.Failed, Err: err}
	case pgdb.ReadOnly, pgdb.Denied, pgdb.Undefined:
		return engine.Answer{Outcome: engine.Refused, Err: s.explain(ctx, db, err)}
	case pgdb.Definite:
		if hopeless(pgdb.SQLState(err)) {
			return engine.Answer{Outcome: engine.Refused, Err: err}
		}
		return engine.Answer{Outcome: engine.Failed, Err: err}
	}
	return engine.Answer{Outcome: engine.Unknown, Err: err}
}

// hopeless reports errors that the same request meets again: wrong data, a
// violated constraint, wrong syntax, a missing feature.
func hopeless(state string) bool {
	if len(state) < 2 {
		return false
	}
	switch state[:2] {
	case "0A", "22", "23", "42":
		return true
	}
	return false
}
