package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/exitcode"
	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/table"
	"github.com/pgmutex/pgmutex/lease"
)

// A Waiter is a client in the waiting line of a lock.
type Waiter struct {
	Holder  string        // its label
	Seen    time.Duration // since it was last heard of
	Offered bool          // the lock has been offered to it
}

// Waiters returns the waiting line of a lock by its full name, the next first.
// The error matches errors.ErrUnsupported where the store does not show one: only
// the lease engine's does. Any other has an exit code.
func (s *Store) Waiters(ctx context.Context, fullName string) ([]Waiter, error) {
	if s.Local || s.Engine != Lease {
		return nil, errors.ErrUnsupported
	}
	config, err := lease.ConnConfig(s.URL)
	if err != nil {
		return nil, exitcode.With(exitcode.Unavailable, err)
	}
	if config.DefaultQueryExecMode != pgx.QueryExecModeSimpleProtocol {
		config.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	list, err := s.waiters(ctx, config, fullName)
	if err != nil {
		// What it says may quote the connection string.
		return nil, exitcode.With(exitcode.Unavailable, errors.New("the waiting line cannot be read"))
	}
	return list, nil
}

func (s *Store) waiters(ctx context.Context, config *pgx.ConnConfig, name string) ([]Waiter, error) {
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	// Who has not been seen for half a minute has gone, as the engine judges it.
	rows, err := conn.Query(ctx, `SELECT w.holder,
	    (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() - w.seen) * 1000000)::bigint, w.offered_at IS NOT NULL
	  FROM `+table.Parse(s.Table).Relation("_waiter")+` AS w
	  WHERE w.lock_name = $1::text AND w.seen > pg_catalog.clock_timestamp() - interval '30 seconds' ORDER BY w.ticket`, name)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (w Waiter, err error) {
		var micros int64
		err = row.Scan(&w.Holder, &micros, &w.Offered)
		w.Seen = max(time.Duration(micros)*time.Microsecond, 0)
		return w, err
	})
}
