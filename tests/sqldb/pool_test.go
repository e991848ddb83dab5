package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/internal/faultconn"
	"github.com/pgmutex/pgmutex/internal/pgtest"
	"github.com/pgmutex/pgmutex/lease"
)

func TestOneConnectionIsRefused(t *testing.T) {
	dsn := database(t)
	eachDriver(t, func(t *testing.T, driver string) {
		_, err := lease.Open(t.Context(), pool(t, driver, dsn, 1), nil)
		if err == nil || !strings.Contains(err.Error(), "SetMaxOpenConns") {
			t.Errorf("got %v", err)
		}
	})
}

// A pool whose connections the application uses up under the lock, for longer
// than the lock may go without a heartbeat: it is kept, seen by everybody, and
// released while the application still has them.
func TestHeartbeatsAreNotStarved(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		for _, size := range []int{2, 4} {
			t.Run(fmt.Sprint(size), func(t *testing.T) {
				t.Parallel()
				dsn := database(t)
				db := pool(t, driver, dsn, size)
				timing := &pgmutex.Options{StaleAfter: 3 * time.Second}
				c := open(t, db, timing)
				h, err := c.Acquire(t.Context(), "x")
				pgtest.Must(t, err)

				// As many queries as the pool has connections: one of them waits, and
				// the heartbeats do not.
				ctx, stop := context.WithCancel(t.Context())
				var all sync.WaitGroup
				for range size {
					all.Go(func() { _, _ = db.ExecContext(ctx, "SELECT pg_sleep(600)") })
				}
				pgtest.WaitFor(t, "the pool to be used up", func() bool { return db.Stats().InUse == size && db.Stats().WaitCount > 0 })

				other, err := lease.Open(t.Context(), dsn, timing)
				pgtest.Must(t, err)
				t.Cleanup(func() { shut(t, other) })
				for end := time.Now().Add(2 * timing.StaleAfter); time.Now().Before(end); time.Sleep(timing.StaleAfter / 10) { //nolint:forbidigo // paces the attempts
					if _, err := other.TryAcquire(t.Context(), "x"); !errors.Is(err, pgmutex.ErrHeld) {
						t.Fatalf("another client's attempt: %v", err)
					}
					pgtest.Must(t, h.Err())
				}
				pgtest.Must(t, h.Release(t.Context()))
				// And so can others be taken meanwhile.
				pgtest.Must(t, c.Do(t.Context(), "y", func(context.Context) error { return nil }))

				stop()
				all.Wait()
				shut(t, c)
				if got := db.Stats(); got.InUse != 0 || got.MaxOpenConnections != size {
					t.Errorf("afterwards: %+v", got)
				}
			})
		}
	})
}

// What the application set in its sessions is what it finds there again, and
// nothing else.
func TestSessionsAreLeftAsTheyWere(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		dsn := database(t)
		db := pool(t, driver, pgtest.With(dsn, "application_name", "app "+driver), 2)
		db.SetMaxIdleConns(2)
		settings := func(c *sql.Conn) (all string) {
			pgtest.Must(t, c.QueryRowContext(t.Context(),
				"SELECT string_agg(name || '=' || setting, E'\n' ORDER BY name) FROM pg_settings").Scan(&all))
			return all
		}
		var before []string
		var conns []*sql.Conn
		for range 2 {
			c, err := db.Conn(t.Context())
			pgtest.Must(t, err)
			_, err = c.ExecContext(t.Context(), "SET lock_timeout = '1h'; SET synchronous_commit = off; SET client_min_messages = error; SET my.setting = 'mine'")
			pgtest.Must(t, err)
			before = append(before, settings(c))
			conns = append(conns, c)
		}
		for _, c := range conns {
			pgtest.Must(t, c.Close())
		}
		c := open(t, db, nil)
		other := open(t, db, nil)
		pgtest.Must(t, c.Do(t.Context(), "x", func(ctx context.Context) error {
			if err := other.TryDo(ctx, "x", nil); err == nil {
				t.Error("the lock was given out twice")
			}
			return nil
		}))
		shut(t, c)
		shut(t, other)
		if n := db.Stats().OpenConnections; n != 2 {
			t.Errorf("%d connections are left of 2", n)
		}
		for i := range 2 {
			c, err := db.Conn(t.Context())
			pgtest.Must(t, err)
			defer c.Close()
			if after := settings(c); after != before[i] {
				t.Errorf("the settings were\n%s\nand are\n%s", before[i], after)
			}
		}
	})
}

// A server that does not answer costs the pool no connection for as long as TCP
// hopes, and nobody waits for it.
func TestSilenceLeaksNothing(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		dsn := database(t)
		relay := faultconn.New(t, pgtest.Shared(t).Addr())
		db := pool(t, driver, pgtest.With(relay.DSN(dsn), "connect_timeout", "2"), 3)
		c := open(t, db, &pgmutex.Options{StaleAfter: 3 * time.Second})
		h, err := c.Acquire(t.Context(), "x")
		pgtest.Must(t, err)
		relay.HoldReplies()
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if _, err := c.Acquire(ctx, "y"); !errors.Is(err, pgmutex.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an acquisition without an answer: %v", err)
		}
		<-h.Context().Done()
		if !errors.Is(h.Err(), pgmutex.ErrLost) {
			t.Errorf("the hold ended with %v", h.Err())
		}
		short, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		_ = c.Close(short) // nothing can be confirmed
		pgtest.WaitFor(t, "all connections to be given back", func() bool { return db.Stats().InUse == 0 })
		relay.ReleaseReplies()
		pgtest.Must(t, db.PingContext(t.Context()))
	})
}

// A refusal by the server is told as one.
func TestRefusals(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		dsn := database(t)
		c := open(t, pool(t, driver, dsn, 0), nil)
		pgtest.Must(t, c.Do(t.Context(), "x", func(context.Context) error { return nil }))
		name := pgtest.One[string](t, dsn, "SELECT current_database()")
		pgtest.Exec(t, dsn, "ALTER DATABASE "+name+" SET default_transaction_read_only = on")
		pgtest.Exec(t, dsn, "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity WHERE datname = $1 AND pid <> pg_backend_pid()", name)
		_, err := c.TryAcquire(t.Context(), "x")
		for range 20 { // connections that ended may leave an attempt unknown
			if !errors.Is(err, pgmutex.ErrUnknown) {
				break
			}
			_, err = c.TryAcquire(t.Context(), "x")
		}
		if err == nil || errors.Is(err, pgmutex.ErrHeld) || errors.Is(err, pgmutex.ErrUnknown) || !strings.Contains(err.Error(), "read-only") {
			t.Errorf("a read-only server: %v", err)
		}
		pgtest.Exec(t, dsn, "BEGIN READ WRITE; ALTER DATABASE "+name+" RESET default_transaction_read_only; COMMIT")
		pgtest.WaitFor(t, "the lock to be had again", func() bool {
			return c.TryDo(t.Context(), "x", func(context.Context) error { return nil }) == nil
		})
	})
}
