package advisory_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/advisory"
	"github.com/pgmutex/pgmutex/internal/faultconn"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

func TestThousandLocksOneConnection(t *testing.T) {
	dsn := pgtest.Shared(t).Database(t)
	c := open(t, dsn, "a", pgmutex.Options{MaxHolds: 1001})
	for i := range 1000 {
		take(t, c, fmt.Sprint("lock-", i))
	}
	if n := sessions(t, dsn); n != 1 {
		t.Errorf("%d connections for 1,000 locks", n)
	}
	if n := c.HeldCount(); n != 1000 {
		t.Errorf("%d holds", n)
	}
	n, err := c.ReleaseAll(t.Context())
	pgtest.Must(t, err)
	if n != 1000 || locksOf(t, dsn, "lock-7") != 0 {
		t.Errorf("released %d", n)
	}
}

func TestCap(t *testing.T) {
	dsn := pgtest.Shared(t).Database(t)
	c := open(t, dsn, "a", pgmutex.Options{})
	for i := range 1000 {
		take(t, c, fmt.Sprint("lock-", i))
	}
	_, err := c.TryAcquire(t.Context(), "one too many")
	if err == nil || !strings.Contains(err.Error(), "MaxHolds") {
		t.Errorf("the 1,001st lock: %v", err)
	}
}

// TestServersLockTable: whoever raises the cap is stopped before the server runs out of
// memory for locks, which would fail everybody else as well.
func TestServersLockTable(t *testing.T) {
	server := pgtest.New(t, pgtest.Options{Settings: map[string]string{"max_locks_per_transaction": "10", "max_connections": "20"}})
	c := open(t, server.Database(t), "a", pgmutex.Options{MaxHolds: 5000})
	taken := 0
	for {
		_, err := c.TryAcquire(t.Context(), fmt.Sprint("lock-", taken))
		if err == nil {
			taken++
			continue
		}
		if !strings.Contains(err.Error(), "max_locks_per_transaction") {
			t.Fatal(err)
		}
		break
	}
	if want := 10 * 20 / 2; taken != want {
		t.Errorf("took %d locks, want %d", taken, want)
	}
	if c.HeldCount() != taken {
		t.Errorf("%d of %d are held", c.HeldCount(), taken)
	}
}

func TestTerminatedSessionIsTold(t *testing.T) {
	dsn := pgtest.Shared(t).Database(t)
	// No renewal is due for minutes: it is the reader that sees the end.
	c := open(t, dsn, "a", pgmutex.Options{StaleAfter: 10 * time.Minute})
	holds := []*pgmutex.Hold{take(t, c, "x"), take(t, c, "y")}
	if !pgtest.One[bool](t, dsn, "SELECT pg_terminate_backend($1)", holderOf(t, dsn, "x")) {
		t.Fatal("not terminated")
	}
	begin := time.Now()
	for _, h := range holds {
		after(t, h.Context().Done(), "the hold to end")
		var lost *pgmutex.LostError
		if !errors.As(context.Cause(h.Context()), &lost) || lost.Reason() != pgmutex.LostSessionEnded {
			t.Errorf("cause %v", context.Cause(h.Context()))
		}
		matches(t, h.Release(t.Context()), pgmutex.ErrLost, pgmutex.ErrNotHeld)
	}
	t.Logf("told after %v", time.Since(begin))
	// No silent renewal under the old hold, and a new one by itself.
	again := take(t, c, "x")
	if holds[0].Held() || !again.Held() {
		t.Errorf("old hold %t, new hold %t", holds[0].Held(), again.Held())
	}
}

func TestRolesIdleTimeout(t *testing.T) {
	server := pgtest.New(t, pgtest.Options{})
	dsn := server.Database(t)
	pgtest.Exec(t, dsn, "ALTER ROLE "+pgtest.Superuser+" SET idle_session_timeout = '200ms'")
	c := open(t, dsn, "a", pgmutex.Options{Heartbeat: 2500 * time.Millisecond})
	h := take(t, c, "x")
	// One without settings of its own ends, which shows that the role's work.
	other := int32(pgtest.Conn(t, dsn).PgConn().PID())
	pgtest.WaitFor(t, "an idle session to be ended", func() bool {
		return pgtest.One[int64](t, dsn, "SELECT count(*) FROM pg_stat_activity WHERE pid = $1", other) == 0
	})
	if !h.Held() || locksOf(t, dsn, "x") != 1 {
		t.Errorf("held %t, locks %d", h.Held(), locksOf(t, dsn, "x"))
	}
	pgtest.Must(t, h.Heartbeat(t.Context()))
}

// TestBlackHole cuts a holder off without a word to either side. The belief has to
// end before the server gives the lock away, which it does by itself.
func TestBlackHole(t *testing.T) {
	server := pgtest.Shared(t)
	dsn := server.Database(t)
	proxy := faultconn.New(t, server.Addr())
	a := open(t, proxy.DSN(dsn), "a", pgmutex.Options{StaleAfter: 3 * time.Second})
	b := open(t, dsn, "b", pgmutex.Options{PollInterval: 10 * time.Millisecond})
	h := take(t, a, "x")
	deadline := h.Deadline()
	proxy.Freeze(faultconn.Both)
	got, err := b.Acquire(t.Context(), "x")
	stillHeld := h.Held() // before anything else
	pgtest.Must(t, err)
	if stillHeld {
		t.Error("two believe that they hold the lock")
	}
	if !time.Now().After(deadline) {
		t.Error("the server gave the lock away before the holder's deadline")
	}
	after(t, h.Context().Done(), "the holder to be told")
	matches(t, h.Err(), pgmutex.ErrLost)
	pgtest.Must(t, got.Release(t.Context()))
}

// TestHeartbeatIsTheServersWord: what nobody has answered confirms nothing.
func TestHeartbeatIsTheServersWord(t *testing.T) {
	server := pgtest.Shared(t)
	proxy := faultconn.New(t, server.Addr())
	c := open(t, proxy.DSN(server.Database(t)), "a", pgmutex.Options{StaleAfter: time.Minute})
	h := take(t, c, "x")
	pgtest.Must(t, h.Heartbeat(t.Context()))
	proxy.Freeze(faultconn.Both)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := h.Heartbeat(ctx); err == nil || !h.Held() {
		t.Errorf("held %v, heartbeat: %v", h.Held(), err)
	}
	proxy.Thaw(faultconn.Both)
	pgtest.Must(t, h.Heartbeat(t.Context()))
}

func TestSessionSettings(t *testing.T) {
	dsn := pgtest.Shared(t).Database(t)
	c := open(t, dsn, "label", pgmutex.Options{StaleAfter: 30 * time.Second})
	take(t, c, "x")
	if got := pgtest.One[string](t, dsn, "SELECT application_name FROM pg_stat_activity WHERE pid = $1", holderOf(t, dsn, "x")); got != "pgmutex label" {
		t.Errorf("application_name %q", got)
	}
}

func TestReleaseWithAnEndedContext(t *testing.T) {
	dsn := pgtest.Shared(t).Database(t)
	config, err := pgx.ParseConfig(dsn)
	pgtest.Must(t, err)
	db := stdlib.OpenDB(*config)
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(2)
	a, b := open(t, db, "a", pgmutex.Options{}), open(t, dsn, "b", pgmutex.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	h, err := a.Acquire(ctx, "x")
	pgtest.Must(t, err)
	cancel()
	pgtest.Must(t, h.Release(ctx))
	if n := locksOf(t, dsn, "x"); n != 0 {
		t.Errorf("%d locks are left", n)
	}
	take(t, b, "x")
}

// TestUnlockThatIsNoProof: a lock that the server does not know ends the session,
// and with it whatever else is held on it.
func TestUnlockThatIsNoProof(t *testing.T) {
	dsn := pgtest.Shared(t).Database(t)
	var deny atomic.Bool
	pool := advisory.Tapped(t, dsn, func(read []byte) {
		if deny.Load() {
			advisory.Deny(read)
		}
	})
	a := open(t, pool, "a", pgmutex.Options{StaleAfter: 10 * time.Minute})
	x, y := take(t, a, "x"), take(t, a, "y")
	pid := holderOf(t, dsn, "x")
	deny.Store(true)
	matches(t, x.Release(t.Context()), pgmutex.ErrLost)
	after(t, y.Context().Done(), "the other hold to end")
	matches(t, y.Err(), pgmutex.ErrLost)
	pgtest.WaitFor(t, "the session to be gone", func() bool {
		return pgtest.One[int64](t, dsn, "SELECT count(*) FROM pg_stat_activity WHERE pid = $1", pid) == 0
	})
	deny.Store(false)
	take(t, a, "x")
}

func TestShortDeadlines(t *testing.T) {
	dsn := pgtest.Shared(t).Database(t)
	c := open(t, dsn, "a", pgmutex.Options{})
	var holds []*pgmutex.Hold
	for i := range 100 {
		holds = append(holds, take(t, c, fmt.Sprint("held-", i)))
	}
	var wg sync.WaitGroup
	for worker := range 3 {
		wg.Go(func() {
			for i := range 500 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i%20)*100*time.Microsecond)
				h, err := c.TryAcquire(ctx, fmt.Sprint("short-", worker, "-", i))
				cancel()
				if err == nil {
					_ = h.Release(t.Context())
				}
			}
		})
	}
	wg.Wait()
	pgtest.WaitFor(t, "nothing but the 100 to be locked", func() bool {
		return pgtest.One[int64](t, dsn, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`) == 100
	})
	for _, h := range holds {
		if !h.Held() {
			t.Fatalf("%q has ended: %v", h.Name(), h.Err())
		}
	}
}
