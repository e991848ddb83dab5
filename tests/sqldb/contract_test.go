package sqldb

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/enginetest"
	"github.com/pgmutex/pgmutex/internal/contract"
	"github.com/pgmutex/pgmutex/internal/pgtest"
	"github.com/pgmutex/pgmutex/lease"
)

// TestContract runs the whole contract over lib/pq, on the server and through
// poolers that give each statement another server connection. Pgx's driver has
// its contract test in package lease.
func TestContract(t *testing.T) {
	s := pgtest.New(t, pgtest.Options{Settings: map[string]string{"max_connections": "500"}})
	same := func(dsn string) string { return dsn }
	ways := []struct {
		name    string
		through func(string) string
	}{
		{"direct", same},
		{"transaction", pgtest.NewBouncer(t, s, "transaction", pgtest.BouncerOptions{PoolSize: 3}).DSN},
		{"session", pgtest.NewBouncer(t, s, "session", pgtest.BouncerOptions{PoolSize: 150}).DSN},
		{"statement", pgtest.NewBouncer(t, s, "statement", pgtest.BouncerOptions{PoolSize: 3}).DSN},
	}
	if pgtest.Race { // the ways differ outside of this process
		ways = ways[:2]
	}
	var all sync.WaitGroup
	for _, way := range ways {
		// The server goes with them: to drop databases of many tables takes long.
		name := "contract_" + way.name
		pgtest.Exec(t, s.DSN("postgres", pgtest.Superuser), "CREATE DATABASE "+name)
		direct := s.DSN(name, pgtest.Superuser)
		all.Go(func() {
			t.Run(way.name, func(t *testing.T) {
				enginetest.Run(t, func(t *testing.T) enginetest.Harness {
					return harness(t, direct, way.through(direct))
				})
			})
		})
	}
	all.Wait()
}

var tables atomic.Int64

// harness is a table of its own, with a relay before each client that can be
// made to fail.
func harness(t *testing.T, direct, dsn string) enginetest.Harness {
	opts := &lease.Options{Table: fmt.Sprintf("lock_%d", tables.Add(1))}
	pgtest.Must(t, lease.Migrate(t.Context(), pool(t, "postgres", dsn, 0), opts))
	var relays contract.Relays
	return enginetest.Harness{
		Abilities: enginetest.PerHoldTiming | enginetest.Tokens | enginetest.Guard |
			enginetest.Inspect | enginetest.History | enginetest.Force | enginetest.Ask |
			enginetest.Queue | enginetest.Durable,
		Scale:   3 * time.Second,
		Workers: 5,
		Client: func(t testing.TB, o *pgmutex.Options) (*pgmutex.Client, error) {
			return relays.Open(t, dsn, o, func(dsn string) (engine.Engine, error) {
				return lease.New(pool(t, "postgres", dsn, 0), opts)
			})
		},
		Transaction: func(t testing.TB, body func(pgmutex.Exec) error) error {
			tx, err := pool(t, "postgres", direct, 1).BeginTx(t.Context(), nil)
			pgtest.Must(t, err)
			err = body(func(ctx context.Context, query string, args ...any) (int64, error) {
				result, err := tx.ExecContext(ctx, query, args...)
				if err != nil {
					return 0, err
				}
				return result.RowsAffected()
			})
			if err != nil {
				_ = tx.Rollback()
				return err
			}
			return tx.Commit()
		},
		Faulter: relays.Faulter(),
	}
}
