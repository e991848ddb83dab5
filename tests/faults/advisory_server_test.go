//go:build faults

package faults

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/advisory"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// Row 4: strangers that wait for the lock in the server's own line, and one that
// has the tables locked, delay no sign of life.
func TestAdvisoryRow04HungTransaction(t *testing.T) {
	t.Parallel()
	w := newSessions(t, nil)
	c := w.client("c")
	h := c.must("job")
	w.blocker("LOCK TABLE mutex_lock, mutex_lock_meta IN ACCESS EXCLUSIVE MODE")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	queue := make(chan struct{})
	go func() {
		defer close(queue)
		w.quietly(ctx, "SELECT pg_advisory_xact_lock($1)", nil, pgmutex.AdvisoryID("job"))
	}()
	pgtest.WaitFor(t, "the stranger to wait", func() bool {
		return pgtest.One[int64](t, w.dsn, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") > 0
	})
	w.history.add(call{Op: "fault", Outcome: "lock table", Start: now()})
	pass(t.Context(), session+slack)
	if !h.look() {
		t.Errorf("lost: %v", h.Err())
	}
	pgtest.Must(t, h.end(t.Context()))
	<-queue
}

// Row 11: what the role sets for the time of statements breaks nothing, and no
// lock is left behind.
func TestAdvisoryRow11TimeoutsOfTheRole(t *testing.T) {
	t.Parallel()
	for _, setting := range []string{"statement_timeout = '1ms'", "statement_timeout = '20ms'", "lock_timeout = '1ms'", "idle_session_timeout = '50ms'"} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			w := newSessions(t, nil)
			db := pgtest.One[string](t, w.dsn, "SELECT current_database()")
			c := w.client("c")
			admin := pgtest.Conn(t, w.server.DSN("postgres", pgtest.Superuser))
			pgtest.Exec(t, admin, fmt.Sprintf("ALTER DATABASE %q SET %s", db, setting))
			pgtest.Exec(t, admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", db)
			for n := range 60 {
				h, err := c.take(t.Context(), fmt.Sprintf("job-%d", n%5), n%2 == 0)
				switch {
				case errors.Is(err, pgmutex.ErrUnknown), errors.Is(err, pgmutex.ErrHeld):
					t.Errorf("acquire: %v", err)
					continue
				case err != nil:
					t.Logf("acquire: %v", err) // that a millisecond was too short to begin is an honest no
					continue
				}
				if n%20 == 0 {
					pass(t.Context(), session/6)
				}
				if err := h.end(t.Context()); err != nil {
					t.Errorf("release: %v", err)
				}
			}
			// Whatever was left behind would keep these out.
			pgtest.Exec(t, admin, fmt.Sprintf("ALTER DATABASE %q RESET ALL", db))
			for n := range 5 {
				pgtest.Must(t, w.client("next").must(fmt.Sprintf("job-%d", n)).end(t.Context()))
			}
			w.judge(demand{"acquire granted"})
		})
	}
}

// Row 12: whose session is terminated is told within milliseconds; others are not
// touched.
func TestAdvisoryRow12Terminate(t *testing.T) {
	t.Parallel()
	w := newSessions(t, nil)
	var clients []*client
	for i := range 4 {
		// No heartbeat is due that could tell.
		clients = append(clients, w.client(fmt.Sprintf("c%d", i), func(o *pgmutex.Options) {
			o.StaleAfter, o.Heartbeat = 10*time.Minute, time.Minute
		}))
	}
	worst := time.Duration(0)
	for round := range 40 {
		c := clients[round%4]
		holds := []*holding{c.must("job"), c.must(fmt.Sprint("own-", round%4))}
		calm := clients[(round+1)%4].must("calm")
		rival := async(func() (*holding, error) { return clients[(round+2)%4].take(t.Context(), "job", true) })
		w.history.add(call{Op: "fault", Outcome: "terminate", Name: c.name, Start: now()})
		pgtest.Exec(t, w.dsn, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1", "pgmutex "+c.name)
		ended := now()
		for _, h := range holds {
			h.lostWithin(slack)
			worst = max(worst, now()-ended)
			var lost *pgmutex.LostError
			if !errors.As(context.Cause(h.Context()), &lost) || lost.Reason() != pgmutex.LostSessionEnded {
				t.Errorf("cause: %v", context.Cause(h.Context()))
			}
			_ = h.end(t.Context())
		}
		if err := <-rival; !errors.Is(err, errGranted) {
			t.Errorf("the rival: %v", err)
		}
		if !calm.look() {
			t.Errorf("another client's hold: %v", calm.Err())
		}
		pgtest.Must(t, calm.end(t.Context()))
	}
	t.Logf("told within %v", worst)
	w.judge(demand{"acquire granted", "lost", "fault"})
}

// Row 15: the server is restarted under load, in both ways. All sessions end, all
// holders are told, and everything goes on.
func TestAdvisoryRow15Restarts(t *testing.T) {
	s := storm{seed: seed(t), length: 14 * time.Second, clients: 4, workers: 2, locks: 4, every: 400 * time.Millisecond, faults: prompt}
	w := newSessions(t, restartable(t))
	w.allowed = trusted // the storm's victim is kept from hearing of it
	calm := w.client("calm")
	s.blow(w, func(ctx context.Context) {
		for _, mode := range []pgtest.StopMode{pgtest.Fast, pgtest.Immediate} {
			pass(ctx, 4*time.Second)
			h, err := calm.take(ctx, "all-along", true)
			if err != nil {
				w.violation("calm: %v", err)
				continue
			}
			w.history.add(call{Op: "restart", Start: now()})
			if err := w.server.Restart(mode); err != nil {
				w.violation("restart: %v", err)
			}
			h.lostWithin(slack)
			_ = h.end(context.WithoutCancel(ctx))
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), session+2*slack)
	defer cancel()
	h, err := w.client("after").take(ctx, "lock-0", true)
	if err != nil {
		t.Errorf("after the storm: %v", err)
	} else {
		pgtest.Must(t, h.end(t.Context()))
	}
	w.judge(demand{"acquire granted", "lost", "write committed", "restart"})
}

// Row 40: a token whose commit did not wait for its standby. Either there is a
// hold that is one, or none, and then nothing is locked.
func TestAdvisoryRow40CancelledSyncWait(t *testing.T) {
	t.Parallel()
	w := newSessions(t, pgtest.New(t, pgtest.Options{}))
	c := w.client("c", minutes)
	set := func(value string) {
		pgtest.Exec(t, w.dsn, "ALTER SYSTEM SET synchronous_standby_names = '"+value+"'")
		pgtest.Exec(t, w.dsn, "SELECT pg_reload_conf()")
		pgtest.WaitFor(t, "the setting", func() bool { return pgtest.One[string](t, w.dsn, "SHOW synchronous_standby_names") == value })
	}
	c.warm()
	set("nobody")
	w.standbyMissed()
	w.history.add(call{Op: "fault", Outcome: "no synchronous standby", Start: now()})
	stop, hits := make(chan struct{}), 0
	var canceler sync.WaitGroup
	canceler.Go(func() {
		for {
			hits += int(pgtest.One[int64](t, w.dsn, `SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity
				WHERE datname = current_database() AND application_name LIKE 'pgmutex%' AND wait_event = 'SyncRep'`))
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	for range 70 { // a sequence is logged for each 32 values
		h, err := c.take(t.Context(), "job", false)
		switch {
		case err == nil:
			if n := w.locked("job"); n != 1 {
				t.Errorf("held, and locked %d times", n)
			}
			if err := h.end(t.Context()); err != nil {
				t.Errorf("release: %v", err)
			}
		case errors.Is(err, pgmutex.ErrHeld):
			t.Errorf("acquire: %v", err)
		default:
			t.Logf("acquire: %v", err)
		}
		if n := w.locked("job"); n != 0 {
			t.Errorf("locked %d times without a hold", n)
		}
	}
	close(stop)
	canceler.Wait()
	if hits == 0 {
		t.Error("vacuous: no wait was canceled")
	}
	set("")
	w.judge(demand{"acquire granted"})
}

// Row 42: a standby says that it is one, and never that the lock is held.
func TestAdvisoryRow42Standby(t *testing.T) {
	t.Parallel()
	w := newSessions(t, pgtest.New(t, pgtest.Options{}))
	standby := w.server.Standby(t, "second")
	c, err := advisory.Open(t.Context(), standby.DSN("postgres", pgtest.Superuser), nil)
	if err == nil {
		pgtest.Must(t, c.Close(t.Context()))
	}
	if !errors.Is(err, errors.ErrUnsupported) || errors.Is(err, pgmutex.ErrHeld) || !strings.Contains(err.Error(), "standby") {
		t.Errorf("on a standby: %v", err)
	}
}

// Row 45: a waiter whose session has died hears of a release soon all the same.
func TestAdvisoryRow45ListenerDies(t *testing.T) {
	t.Parallel()
	w := newSessions(t, nil)
	holder, waiter := w.client("holder", minutes), w.client("waiter", minutes)
	for round := range 3 {
		h := holder.must("job")
		next := async(func() (*holding, error) { return waiter.take(t.Context(), "job", true) })
		waits := func() bool {
			st, err := holder.Inspect(t.Context(), "job")
			return err == nil && st.Waiters == 1
		}
		pgtest.WaitFor(t, "the waiter to wait", waits)
		pgtest.Exec(t, w.dsn, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'pgmutex waiter'")
		w.history.add(call{Op: "fault", Outcome: "terminate", Name: "waiter", Start: now()})
		released := now()
		pgtest.Must(t, h.end(t.Context()))
		if err := <-next; !errors.Is(err, errGranted) {
			t.Errorf("the waiter: %v", err)
		}
		took := now() - released
		t.Logf("round %d: handed over after %v", round, took)
		if took > 2*time.Second+slack {
			t.Errorf("handed over after %v", took)
		}
	}
	w.judge(demand{"acquire granted", "fault"})
}

// Row 47: a release whose waking fails is a release.
func TestAdvisoryRow47NotifyFails(t *testing.T) {
	t.Parallel()
	w := newSessions(t, nil)
	database := pgtest.One[string](t, w.dsn, "SELECT current_database()::text")
	w.server.Role(t, "mute", "secret")
	pgtest.Exec(t, w.dsn, "REVOKE EXECUTE ON FUNCTION pg_notify FROM PUBLIC")
	pgtest.Exec(t, w.dsn, `GRANT ALL ON ALL TABLES IN SCHEMA public TO mute; GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO mute`)
	w.dsn = w.server.PasswordDSN(database, "mute", "secret")
	holder, waiter := w.client("holder", minutes), w.client("waiter", minutes)
	h := holder.must("job")
	next := async(func() (*holding, error) { return waiter.take(t.Context(), "job", true) })
	pgtest.WaitFor(t, "the waiter to wait", func() bool {
		st, err := holder.Inspect(t.Context(), "job")
		return err == nil && st.Waiters == 1
	})
	if err := h.end(t.Context()); err != nil {
		t.Errorf("release: %v", err)
	}
	if err := <-next; !errors.Is(err, errGranted) {
		t.Errorf("the waiter: %v", err)
	}
	w.judge(demand{"acquire granted"})
}

// Row 53: a role whose transactions are serializable gets the same answers.
func TestAdvisoryRow53StrictIsolation(t *testing.T) {
	t.Parallel()
	w := newSessions(t, nil)
	w.dsn = pgtest.With(w.dsn, "default_transaction_isolation", "serializable", "default_transaction_deferrable", "on")
	s := storm{seed: seed(t), length: 3 * time.Second, clients: 4, workers: 2, locks: 2, every: time.Hour, faults: audible}
	s.blow(w)
	w.judge(demand{"acquire granted", "write committed"})
}

// Row 54: whoever is removed by force hears of it at once, and a request that
// means an earlier hold does nothing.
func TestAdvisoryRow54Force(t *testing.T) {
	t.Parallel()
	w := newSessions(t, nil)
	c, operator := w.client("c"), w.client("operator")
	seen := func() pgmutex.Status {
		st, err := operator.Inspect(t.Context(), "job")
		pgtest.Must(t, err)
		return st
	}
	first := c.must("job")
	old := seen()
	pgtest.Must(t, first.end(t.Context()))
	now1 := &pgmutex.ForceOptions{Now: true}
	if err := operator.ForceRelease(t.Context(), old, now1); !errors.Is(err, pgmutex.ErrNotHeld) {
		t.Errorf("force of an earlier hold: %v", err)
	}
	h := w.client("other").must("job")
	if err := operator.ForceRelease(t.Context(), old, now1); !errors.Is(err, pgmutex.ErrHeld) {
		t.Errorf("force of an earlier hold: %v", err)
	}
	if !h.look() {
		t.Error("the request hit another hold")
	}
	pgtest.Must(t, operator.ForceRelease(t.Context(), seen(), now1))
	forced := now()
	next, err := operator.take(t.Context(), "job", false)
	pgtest.Must(t, err)
	h.lostWithin(slack)
	t.Logf("told after %v", now()-forced)
	_ = h.end(t.Context())
	pgtest.Must(t, next.end(t.Context()))
	w.judge(demand{"lost", "acquire granted"})
}

// Row 59: an application that holds all connections of the pool that it gave us
// starves nothing.
func TestAdvisoryRow59PoolStarvation(t *testing.T) {
	t.Parallel()
	w := newSessions(t, nil)
	config, err := pgxpool.ParseConfig(w.dsn)
	pgtest.Must(t, err)
	config.MaxConns = 2
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	pgtest.Must(t, err)
	t.Cleanup(pool.Close)
	c, err := advisory.Open(t.Context(), pool, &pgmutex.Options{StaleAfter: session})
	pgtest.Must(t, err)
	h, err := c.TryAcquire(t.Context(), "job")
	pgtest.Must(t, err)
	for range 2 {
		conn, err := pool.Acquire(t.Context())
		pgtest.Must(t, err)
		t.Cleanup(conn.Release)
	}
	pass(t.Context(), session+slack)
	if !h.Held() {
		t.Errorf("lost: %v", h.Err())
	}
	pgtest.Must(t, h.Release(t.Context()))
	pgtest.Must(t, c.Close(t.Context()))
}
