//go:build faults

package faults

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/internal/pgtest"
	"github.com/pgmutex/pgmutex/lease"
)

// blocker is a transaction of a stranger's that keeps a row locked.
func (w *world) blocker(sql string, args ...any) pgx.Tx {
	w.t.Helper()
	tx, err := pgtest.Conn(w.t, w.dsn).Begin(w.t.Context())
	pgtest.Must(w.t, err)
	pgtest.Exec(w.t, tx, sql, args...)
	return tx
}

const lockRow = "SELECT 1 FROM mutex_lock WHERE lock_name = $1 FOR UPDATE"

// dead puts a row of a holder that died an hour ago.
func (w *world) dead(name string) {
	w.t.Helper()
	pgtest.Exec(w.t, w.dsn, `INSERT INTO mutex_lock (lock_name, instance_id, last_heartbeat, acquired_at, promised_by, stale_after)
		VALUES ($1, 'dead~1', now() - interval '1 h', now() - interval '2 h', 'dead~1', '5 s')
		ON CONFLICT (locked, lock_name) DO UPDATE SET instance_id = 'dead~1', promised_by = 'dead~1', last_heartbeat = EXCLUDED.last_heartbeat`, name)
}

// Row 2: a contender waits for a stranger's lock on a stale row for longer than
// StaleAfter, in short waits, and what it writes then is of the time when the row
// became its own.
func TestRow02WaitForALockedRow(t *testing.T) {
	t.Parallel()
	for kind, sql := range map[string]string{"lock": lockRow, "delete": "DELETE FROM mutex_lock WHERE lock_name = $1"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			w.dead("job")
			stranger := w.blocker(sql, "job")
			w.history.add(call{Op: "fault", Outcome: kind + " row", Start: now()})
			c := w.client("c")
			next := make(chan *holding, 1)
			go func() {
				h, err := c.take(t.Context(), "job", true)
				if err != nil {
					w.violation("acquire: %v", err)
				}
				next <- h
			}()
			longest := time.Duration(0)
			for began := now(); now()-began < 2*stale; pass(t.Context(), 20*time.Millisecond) {
				longest = max(longest, pgtest.One[time.Duration](t, w.dsn, `SELECT COALESCE(max(clock_timestamp() - query_start), '0')
					FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'pgmutex%' AND wait_event_type = 'Lock'`))
			}
			if longest > 400*time.Millisecond {
				t.Errorf("a statement waited for %v", longest)
			}
			pgtest.Must(t, stranger.Commit(t.Context()))
			h := <-next
			if h == nil {
				return
			}
			if age := pgtest.One[time.Duration](t, w.dsn, "SELECT clock_timestamp() - last_heartbeat FROM mutex_lock WHERE lock_name = 'job'"); age > heartbeat*2+slack/2 {
				t.Errorf("the heartbeat is %v old", age)
			}
			pgtest.Must(t, h.end(t.Context()))
			w.judge(demand{"acquire granted"})
		})
	}
}

// Case 9, and row 2 to the microsecond: of a takeover that had to wait for the
// row, the heartbeat is not older than the end of that wait; of a renewal by no
// more than the wait.
func TestRow02HeartbeatIsOfTheTimeWhenTheRowIsOurs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	c := w.client("c", longTimes)
	waits := func() bool {
		return pgtest.One[int64](t, w.dsn, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name LIKE 'pgmutex%' AND wait_event_type = 'Lock'`) > 0
	}
	// One round: do waits for the row, and goes on right after the moment at.
	round := func(do func() error) (at time.Time, err error) {
		stranger := w.blocker(lockRow, "job")
		done := make(chan error, 1)
		go func() { done <- do() }()
		for !waits() && len(done) == 0 {
			pass(t.Context(), time.Millisecond)
		}
		pass(t.Context(), 10*time.Millisecond)
		at = pgtest.One[time.Time](t, stranger, "SELECT clock_timestamp()")
		pgtest.Must(t, stranger.Rollback(t.Context()))
		return at, <-done
	}
	beat := func() time.Time {
		return pgtest.One[time.Time](t, w.dsn, "SELECT last_heartbeat FROM mutex_lock WHERE lock_name = 'job'")
	}
	var h *holding
	for range 50 {
		w.dead("job")
		at, err := round(func() (err error) {
			h, err = c.take(t.Context(), "job", false)
			return err
		})
		if err == nil {
			if b := beat(); b.Before(at) {
				t.Errorf("takeover: the heartbeat is %v older than the end of the wait", at.Sub(b))
			}
			break
		}
	}
	if h == nil {
		t.Fatal("no takeover waited for the row and got it")
	}
	for range 50 {
		// An UPDATE computes its values before it waits, so a renewal may be older
		// by the wait, and no more.
		at, err := round(func() error { return h.Heartbeat(t.Context()) })
		if err == nil {
			if age := at.Sub(beat()); age > 150*time.Millisecond {
				t.Errorf("renewal: the heartbeat is %v older than the end of the wait", age)
			}
			break
		}
	}
	pgtest.Must(t, h.end(t.Context()))
	w.judge(demand{"takeover"})
}

// Row 1, the part of package lease is TestOneWinner: a token is drawn when the
// row is there. An insertion that was held up after its values were made gets a
// higher one than a grant that came and went meanwhile.
func TestRow01TokenIsDrawnWithTheRow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	pgtest.Exec(t, w.dsn, `
CREATE FUNCTION fault_nap() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.3); RETURN NEW; END $$;
CREATE TRIGGER fault_nap BEFORE INSERT ON mutex_lock FOR EACH ROW WHEN (NEW.instance_id LIKE 'slow~%') EXECUTE FUNCTION fault_nap();`)
	slow, quick := w.client("slow", longTimes), w.client("quick", longTimes)
	quick.warm()
	hits := 0
	for n := range 5 {
		name := fmt.Sprintf("job-%d", n)
		late := make(chan *holding, 1)
		go func() {
			h, err := slow.take(t.Context(), name, false)
			if err != nil {
				h = nil
			}
			late <- h
		}()
		pgtest.WaitFor(t, "the slow insertion", func() bool {
			return pgtest.One[int64](t, w.dsn, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'") == 1
		})
		q, err := quick.take(t.Context(), name, false)
		pgtest.Must(t, err)
		pgtest.Must(t, q.end(t.Context()))
		if h := <-late; h != nil {
			hits++
			pgtest.Must(t, h.end(t.Context()))
		}
	}
	if hits == 0 {
		t.Error("vacuous: no insertion was overtaken")
	}
	w.judge(demand{"acquire granted"})
}

// Row 4: a transaction that hangs on the row of one hold costs that hold alone.
func TestRow04HungTransaction(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	c := w.client("c")
	bad, good := c.must("bad"), []*holding{c.must("good-1"), c.must("good-2")}
	w.blocker(lockRow, "bad")
	locked := now()
	w.history.add(call{Op: "fault", Outcome: "lock row", Start: locked})
	bad.lostWithin(fence + slack)
	t.Logf("lost after %v", now()-locked)
	pass(t.Context(), 2*stale)
	for _, h := range good {
		if !h.look() {
			t.Errorf("%q: %v", h.Name(), h.Err())
		}
		pgtest.Must(t, h.end(t.Context()))
	}
	if err := bad.end(t.Context()); !errors.Is(err, pgmutex.ErrLost) {
		t.Errorf("release of what was lost: %v", err)
	}
}

// Row 11: what the role sets for the time of statements does not break a wait,
// and nothing is granted without a handle.
func TestRow11TimeoutsOfTheRole(t *testing.T) {
	t.Parallel()
	for _, setting := range []string{"statement_timeout = '1ms'", "statement_timeout = '20ms'", "lock_timeout = '1ms'", "idle_session_timeout = '50ms'"} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			db := pgtest.One[string](t, w.dsn, "SELECT current_database()")
			c := w.client("c")
			admin := pgtest.Conn(t, w.server.DSN("postgres", pgtest.Superuser)) // has the time that it needs
			pgtest.Exec(t, admin, fmt.Sprintf("ALTER DATABASE %q SET %s", db, setting))
			pgtest.Exec(t, admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", db)
			for n := range 60 {
				h, err := c.take(t.Context(), fmt.Sprintf("job-%d", n%5), n%2 == 0)
				switch {
				case errors.Is(err, pgmutex.ErrUnknown), errors.Is(err, pgmutex.ErrHeld):
					t.Errorf("acquire: %v", err)
					continue
				case err != nil:
					// That the connection could not even be set up in a
					// millisecond is an honest no.
					t.Logf("acquire: %v", err)
					continue
				}
				if n%20 == 0 {
					pass(t.Context(), 3*heartbeat)
				}
				if err := h.end(t.Context()); err != nil {
					t.Errorf("release: %v", err)
				}
			}
			pgtest.Exec(t, admin, fmt.Sprintf("ALTER DATABASE %q RESET ALL", db))
			pgtest.WaitFor(t, "all to be free", func() bool { return pgtest.One[int64](t, w.dsn, "SELECT count(*) FROM mutex_lock") == 0 })
			// In a millisecond a busy machine may not have made a single session.
			if w.history.n("acquire granted") == 0 && setting != "statement_timeout = '1ms'" {
				t.Error("vacuous: nothing was granted within the limit")
			}
			pgtest.Must(t, c.must("job-0").end(t.Context()))
			w.judge(demand{"acquire granted"})
		})
	}
}

// Row 40: a commit that did not wait for its standby is no grant.
func TestRow40CancelledSyncWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pgtest.New(t, pgtest.Options{}))
	c := w.client("c", longTimes)
	c.warm()
	set := func(value string) {
		pgtest.Exec(t, w.dsn, "ALTER SYSTEM SET synchronous_standby_names = '"+value+"'")
		pgtest.Exec(t, w.dsn, "SELECT pg_reload_conf()")
		pgtest.WaitFor(t, "the setting", func() bool { return pgtest.One[string](t, w.dsn, "SHOW synchronous_standby_names") == value })
	}
	set("nobody")
	w.standbyMissed()
	w.history.add(call{Op: "fault", Outcome: "no synchronous standby", Start: now()})
	answer := make(chan error, 1)
	go func() {
		_, err := c.take(t.Context(), "job", false)
		answer <- err
	}()
	pgtest.WaitFor(t, "the commit to be canceled", func() bool {
		return pgtest.One[int64](t, w.dsn, `SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name LIKE 'pgmutex%' AND wait_event = 'SyncRep' AND query LIKE '%acquired_at%'`) > 0
	})
	if err := <-answer; !errors.Is(err, pgmutex.ErrUnknown) {
		t.Errorf("a grant that was not durable: %v", err)
	}
	set("")
	w.free("job")
	w.judge(demand{"acquire unknown"})
}

// standbyMissed waits until commits wait for a standby that is not there: the
// setting counts when the checkpointer has seen it.
func (w *world) standbyMissed() {
	w.t.Helper()
	conn := pgtest.Conn(w.t, w.dsn)
	pid := int32(conn.PgConn().PID())
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = conn.Exec(w.t.Context(), "INSERT INTO fault_log (name, n, token) VALUES ('', 0, 0)")
			}
		}
	}()
	pgtest.WaitFor(w.t, "commits to wait", func() bool {
		return pgtest.One[int64](w.t, w.dsn, "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'SyncRep'", pid) == 1
	})
	close(stop)
	pgtest.WaitFor(w.t, "the last of them to be canceled", func() bool {
		pgtest.Exec(w.t, w.dsn, "SELECT pg_cancel_backend($1)", pid)
		select {
		case <-done:
			return true
		default:
			return false
		}
	})
}

// Row 42: a standby says that it is one, and never that the lock is held.
func TestRow42Standby(t *testing.T) {
	t.Parallel()
	primary := pgtest.New(t, pgtest.Options{})
	w := newWorld(t, primary)
	standby := primary.Standby(t, "second")
	db := pgtest.One[string](t, w.dsn, "SELECT current_database()")
	pgtest.WaitFor(t, "the standby to follow", func() bool {
		return pgtest.One[bool](t, standby.DSN(db, pgtest.Superuser), "SELECT to_regclass('mutex_lock_meta') IS NOT NULL")
	})
	c, err := lease.Open(t.Context(), standby.DSN(db, pgtest.Superuser), nil)
	if err == nil {
		_, err = c.TryAcquire(t.Context(), "job")
		pgtest.Must(t, c.Close(t.Context()))
	}
	if err == nil || errors.Is(err, pgmutex.ErrHeld) || errors.Is(err, pgmutex.ErrUnknown) || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("acquire on a standby: %v", err)
	}
}

// Row 45: a waiter whose connection for notifications has died hears of a
// release soon all the same.
func TestRow45ListenerDies(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	holder, waiter := w.client("holder", longTimes), w.client("waiter", longTimes)
	for round := range 3 {
		h := holder.must("job")
		next := async(func() (*holding, error) { return waiter.take(t.Context(), "job", true) })
		pgtest.WaitFor(t, "the waiter to stand in the line", func() bool {
			st, err := holder.Inspect(t.Context(), "job")
			return err == nil && st.Waiters == 1
		})
		pgtest.WaitFor(t, "the listener, to terminate it", func() bool {
			return pgtest.One[int64](t, w.dsn, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
				WHERE datname = current_database() AND query ILIKE 'listen%'`) > 0
		})
		released := now()
		pgtest.Must(t, h.end(t.Context()))
		if err := <-next; !errors.Is(err, errGranted) {
			t.Errorf("the waiter: %v", err)
		}
		t.Logf("round %d: handed over after %v", round, now()-released)
		if took := now() - released; took > 2*time.Second+slack {
			t.Errorf("handed over after %v", took)
		}
	}
}

// Row 45, the race that a look from the release at the waiters loses: one whose
// place is being committed while the release waits for its mark is woken.
func TestRow45PlaceIsCommittedDuringTheRelease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	c := w.client("c", longTimes)
	h := c.must("job")
	arriving := w.blocker("INSERT INTO mutex_lock_waiter (lock_name, channel, holder, seen) VALUES ($1, 'pgmutex_test', 'arriving', clock_timestamp())", "job")
	pgtest.Exec(t, arriving, "UPDATE mutex_lock SET waiting = true WHERE lock_name = 'job'")
	released := make(chan error, 1)
	go func() { released <- h.end(t.Context()) }()
	pgtest.WaitFor(t, "the release to wait for the mark", func() bool {
		return pgtest.One[int64](t, w.dsn, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name LIKE 'pgmutex%' AND wait_event_type = 'Lock' AND query LIKE '%DELETE%'`) > 0
	})
	pgtest.Must(t, arriving.Commit(t.Context()))
	pgtest.Must(t, <-released)
	pgtest.WaitFor(t, "the offer", func() bool {
		return pgtest.One[bool](t, w.dsn, "SELECT offered_at IS NOT NULL FROM mutex_lock_waiter WHERE channel = 'pgmutex_test'")
	})
}

// Row 47: a release whose waking fails is a release.
func TestRow47NotifyFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	holder, waiter := w.client("holder", longTimes), w.client("waiter", longTimes)
	h := holder.must("job")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	next := async(func() (*holding, error) { return waiter.take(ctx, "job", true) })
	pgtest.WaitFor(t, "the waiter to stand in the line", func() bool {
		st, err := holder.Inspect(t.Context(), "job")
		return err == nil && st.Waiters == 1
	})
	pgtest.Exec(t, w.dsn, "ALTER TABLE mutex_lock_waiter RENAME TO gone")
	if err := h.end(t.Context()); err != nil {
		t.Errorf("release: %v", err)
	}
	if w.rows("job") != 0 {
		t.Error("the row is still there")
	}
	pgtest.Exec(t, w.dsn, "ALTER TABLE gone RENAME TO mutex_lock_waiter")
	<-next // granted by polling, or told that a table was missing
}
