package security

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/advisory"
	"github.com/pgmutex/pgmutex/internal/faultconn"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

const (
	forged  = 10_000
	atOnce  = 200 // notifications in one transaction
	biggest = 7900
)

// Ten thousand notifications by a role without any right, on the very channel that
// a waiter listens to, are attempts at a bounded rate: they neither break the
// wait nor make more statements than the passing of time does.
func TestForgedNotifications(t *testing.T) {
	t.Parallel()
	for _, engineName := range []string{"lease", "advisory"} {
		t.Run(engineName, func(t *testing.T) {
			t.Parallel()
			owner, database := tables(t)
			proxy := faultconn.New(t, pgtest.Shared(t).Addr())
			holder, waiter := floodClient(t, engineName, owner), floodClient(t, engineName, proxy.DSN(owner))
			h, err := holder.Acquire(t.Context(), "job")
			pgtest.Must(t, err)
			type answer struct {
				hold *pgmutex.Hold
				err  error
			}
			granted := make(chan answer, 1)
			go func() {
				w, err := waiter.Acquire(t.Context(), "job")
				granted <- answer{w, err}
			}()
			channel := ""
			pgtest.WaitFor(t, "the waiter to listen", func() bool {
				list := pgtest.Column[string](t, owner, `SELECT substring(query FROM '(?i)^listen "?([a-z0-9_]+)')
					FROM pg_stat_activity WHERE datname = current_database() AND query ILIKE 'listen %'`)
				if engineName == "advisory" { // anybody can know it
					channel = fmt.Sprint("pgmutex_advisory_", pgmutex.AdvisoryID("job"))
					seen, err := holder.Inspect(t.Context(), "job")
					return err == nil && seen.Waiters == 1
				}
				if len(list) == 1 {
					channel = list[0]
				}
				return channel != ""
			})

			stranger := pgtest.Conn(t, role(t, owner, database, ""))
			before, began := proxy.Counts(), time.Now()
			flood(t, stranger, channel)
			pgtest.WaitFor(t, "the flood to arrive", func() bool {
				return proxy.Counts().Since(before).Seen(faultconn.Replies, 'A') >= forged
			})
			took := time.Since(began)
			made := proxy.Counts().Since(before)
			statements := made.Execute + made.Query
			t.Logf("%d notifications arrived in %v and led to %d statements", forged, took, statements)
			// A hint is followed every 10 ms at most, and a lease's waiter asks for
			// what was offered every 5 ms at most.
			if most := 50 + 4*int(took/(10*time.Millisecond)); statements > most {
				t.Errorf("%d statements in %v, at most %d are explained", statements, took, most)
			}
			select {
			case a := <-granted:
				t.Fatalf("the wait has ended: %v, %v", a.hold, a.err)
			default:
			}
			if err := h.Heartbeat(t.Context()); err != nil {
				t.Errorf("the holder: %v", err)
			}
			pgtest.Must(t, h.Release(t.Context()))
			a := <-granted
			pgtest.Must(t, a.err)
			pgtest.Must(t, a.hold.Release(t.Context()))
		})
	}
}

func floodClient(t *testing.T, engineName, dsn string) *pgmutex.Client {
	t.Helper()
	if engineName == "lease" {
		return open(t, dsn, nil)
	}
	c, err := advisory.Open(t.Context(), dsn, nil)
	pgtest.Must(t, err)
	return closing(t, c)
}

// flood sends forged notifications: empty, large, and with the names of locks.
func flood(t *testing.T, conn *pgx.Conn, channel string) {
	t.Helper()
	for range forged / atOnce {
		// Equal ones of one transaction would become one.
		pgtest.Exec(t, conn, fmt.Sprintf(`SELECT count(pg_notify(%s, CASE n %% 100 WHEN 0 THEN repeat('x', %d) ELSE '' END || n::text))
			FROM generate_series(1, %d) AS n`, "'"+channel+"'", biggest, atOnce))
	}
}

// A client that only holds does not hear of what waiters hear of. A session of the
// advisory engine hears requests to stop: ten thousand that are none, or for keys that
// it does not hold, make it do nothing.
func TestFloodedHolders(t *testing.T) {
	t.Parallel()
	owner, database := tables(t)
	stranger := pgtest.Conn(t, role(t, owner, database, ""))
	for _, engineName := range []string{"lease", "advisory"} {
		proxy := faultconn.New(t, pgtest.Shared(t).Addr())
		c := floodClient(t, engineName, proxy.DSN(owner))
		err := c.Do(t.Context(), "job", func(ctx context.Context) error {
			before, began := proxy.Counts(), time.Now()
			flood(t, stranger, fmt.Sprint("pgmutex_advisory_", pgmutex.AdvisoryID("job")))
			if n := proxy.Counts().Since(before).Seen(faultconn.Replies, 'A'); n != 0 {
				return errors.New("what is for waiters reaches a holder")
			}
			if engineName == "advisory" {
				pid := pgtest.One[int32](t, owner, `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted
					AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
					AND ((classid::bigint << 32) | objid::bigint) = $1`, pgmutex.AdvisoryID("job"))
				flood(t, stranger, fmt.Sprint("pgmutex_stop_", pid))
				pgtest.WaitFor(t, "the flood to arrive", func() bool {
					return proxy.Counts().Since(before).Seen(faultconn.Replies, 'A') >= forged
				})
			}
			made := proxy.Counts().Since(before)
			t.Logf("%s: %d statements in %v", engineName, made.Execute+made.Query, time.Since(began))
			if most := 10 + 2*int(time.Since(began)/(200*time.Millisecond)); made.Execute+made.Query > most { // heartbeats
				t.Errorf("%s: %d statements", engineName, made.Execute+made.Query)
			}
			h, _ := pgmutex.FromContext(ctx)
			return h.Heartbeat(ctx)
		})
		if err != nil {
			t.Errorf("%s: %v", engineName, err)
		}
	}
}
