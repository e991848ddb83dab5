package sqldb

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/enginetest"
	"github.com/pgmutex/pgmutex/internal/faultconn"
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
	server, err := pgx.ParseConfig(dsn)
	pgtest.Must(t, err)

	var mu sync.Mutex
	relays := map[*pgmutex.Client]*faultconn.Proxy{}
	relay := func(c *pgmutex.Client) *faultconn.Proxy {
		mu.Lock()
		defer mu.Unlock()
		return relays[c]
	}
	return enginetest.Harness{
		Abilities: enginetest.PerHoldTiming | enginetest.Tokens | enginetest.Guard |
			enginetest.Inspect | enginetest.History | enginetest.Force | enginetest.Ask |
			enginetest.Queue | enginetest.Durable,
		Scale:   3 * time.Second,
		Workers: 5,
		Client: func(t testing.TB, o *pgmutex.Options) (*pgmutex.Client, error) {
			p := faultconn.New(t, net.JoinHostPort(server.Host, strconv.Itoa(int(server.Port))))
			eng, err := lease.New(pool(t, "postgres", p.DSN(dsn), 0), opts)
			if err != nil {
				return nil, err
			}
			client, err := pgmutex.New(t.Context(), eng, o)
			mu.Lock()
			defer mu.Unlock()
			relays[client] = p
			return client, err
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
		Faulter: enginetest.Faulter{
			Kill: func(_ testing.TB, c *pgmutex.Client) {
				relay(c).Refuse(true)
				relay(c).Cut()
			},
			Cut: func(_ testing.TB, c *pgmutex.Client) { relay(c).Cut() },
			HoldReplies: func(_ testing.TB, c *pgmutex.Client) func() {
				relay(c).HoldReplies()
				return relay(c).ReleaseReplies
			},
		},
	}
}
