package failover

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/advisory"
	"github.com/pgmutex/pgmutex/internal/pgtest"
	"github.com/pgmutex/pgmutex/lease"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// A pair is a primary with a standby that follows it, and a database with the
// lock tables.
type pair struct {
	t                testing.TB
	primary, standby *pgtest.Server
}

func newPair(t testing.TB) *pair {
	t.Helper()
	p := &pair{t: t, primary: pgtest.New(t, pgtest.Options{})}
	pgtest.Must(t, lease.Migrate(t.Context(), p.old(), nil))
	p.standby = p.primary.Standby(t, "second")
	return p
}

func (p *pair) old() string { return p.primary.DSN("postgres", pgtest.Superuser) }
func (p *pair) new() string { return p.standby.DSN("postgres", pgtest.Superuser) }

// either finds whichever of the two is the primary.
func (p *pair) either() string {
	return fmt.Sprintf("postgres://%s@%s,%s/postgres?sslmode=disable&target_session_attrs=read-write",
		pgtest.Superuser, p.primary.Addr(), p.standby.Addr())
}

// failover lets the primary's host vanish and promotes the standby.
func (p *pair) failover() {
	p.t.Helper()
	pgtest.Must(p.t, p.primary.Kill())
	pgtest.Must(p.t, p.standby.Promote(p.t.Context()))
}

// follows waits until the standby has everything that was committed.
func (p *pair) follows() {
	p.t.Helper()
	lsn := pgtest.One[string](p.t, p.old(), "SELECT pg_current_wal_flush_lsn()::text")
	pgtest.WaitFor(p.t, "the standby to follow", func() bool {
		return pgtest.One[bool](p.t, p.new(), "SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn", lsn)
	})
}

func open(t testing.TB, dsn, name string, stale time.Duration) *pgmutex.Client {
	t.Helper()
	c, err := lease.Open(t.Context(), dsn, &pgmutex.Options{HolderID: name, StaleAfter: stale, Heartbeat: stale / 20})
	pgtest.Must(t, err)
	closeAfter(t, c)
	return c
}

func closeAfter(t testing.TB, c *pgmutex.Client) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
}

// lost waits for the end of a hold and returns how it ended.
func lost(t testing.TB, h *pgmutex.Hold, within time.Duration) *pgmutex.LostError {
	t.Helper()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-h.Context().Done():
	case <-timer.C:
		t.Fatalf("%q is not lost after %v", h.Name(), within)
	}
	var loss *pgmutex.LostError
	if cause := context.Cause(h.Context()); !errors.As(cause, &loss) {
		t.Fatalf("%q ended by %v", h.Name(), cause)
	}
	return loss
}

// Row 38. The standby misses the acquisition, and with it enough others to use up
// what a sequence writes to its log in advance. The holder is told at its first
// heartbeat on the new primary, which has granted the lock to somebody else; the
// tokens order the two, and the guard refuses the first.
func TestRow38AsyncPromotionLosesTheCommit(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	a := open(t, p.either(), "a", 30*time.Second)
	p.follows()
	pgtest.Must(t, p.standby.Disconnect(t.Context()))
	for range 100 {
		pgtest.Must(t, a.Do(t.Context(), "other", func(context.Context) error { return nil }))
	}
	h, err := a.TryAcquire(t.Context(), "job")
	pgtest.Must(t, err)

	pgtest.Must(t, p.primary.Kill())
	killed := time.Now()
	pgtest.Must(t, p.standby.Promote(t.Context()))
	promoted := time.Now()
	behind := pgtest.One[int64](t, p.new(), "SELECT last_value FROM mutex_lock_token")
	if behind >= h.Token() {
		t.Fatalf("vacuous: the standby knows of token %d, and %d was drawn", behind, h.Token())
	}
	b := open(t, p.either(), "b", 30*time.Second)
	g, err := b.TryAcquire(t.Context(), "job")
	pgtest.Must(t, err)
	both := h.Held()
	if g.Token() <= h.Token() {
		t.Errorf("token %d after %d", g.Token(), h.Token())
	}
	if n := pgtest.One[int64](t, p.new(), "SELECT count(*) FROM (SELECT 1 FROM mutex_lock WHERE lock_name = $1 AND instance_id = $2 FOR KEY SHARE) AS guard",
		"job", h.Info().Term); n != 0 {
		t.Error("the guard of the first holder does not refuse")
	}

	loss := lost(t, h, 20*time.Second)
	t.Logf("promoted %v after the kill; granted again while the first believed: %v; told %v after the promotion: %v",
		promoted.Sub(killed), both, time.Since(promoted), loss)
	pgtest.WaitFor(t, "the reason", func() bool { return loss.Reason() == pgmutex.LostTakenOver && loss.By() == "b" })
	if !g.Held() {
		t.Errorf("the second holder: %v", g.Err())
	}
	// The raised sequence is above everything from before, for everybody.
	pgtest.Must(t, g.Release(t.Context()))
	again, err := a.TryAcquire(t.Context(), "job")
	pgtest.Must(t, err)
	if again.Token() <= g.Token() {
		t.Errorf("token %d after %d", again.Token(), g.Token())
	}
	pgtest.Must(t, again.Release(t.Context()))
}

// Row 39. Where commits wait for the standby, the promoted one has the grant: the
// holder goes on with it, and others find it held.
func TestRow39SyncPromotionKeepsTheHold(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	pgtest.Exec(t, p.old(), "ALTER SYSTEM SET synchronous_standby_names = 'second'")
	pgtest.Exec(t, p.old(), "SELECT pg_reload_conf()")
	pgtest.WaitFor(t, "the standby to be a synchronous one", func() bool {
		return pgtest.One[int64](t, p.old(), "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") == 1
	})
	a := open(t, p.either(), "a", time.Minute)
	h, err := a.TryAcquire(t.Context(), "job")
	pgtest.Must(t, err)
	p.failover()

	b := open(t, p.either(), "b", time.Minute)
	var held *pgmutex.HeldError
	if _, err := b.TryAcquire(t.Context(), "job"); !errors.As(err, &held) || held.Holder != "a" {
		t.Errorf("a rival on the new primary: %v", err)
	}
	before := h.Deadline()
	pgtest.WaitFor(t, "a heartbeat on the new primary", func() bool { return h.Heartbeat(t.Context()) == nil })
	if !h.Held() || !h.Deadline().After(before) {
		t.Errorf("held %v until %v, before the heartbeat until %v: %v", h.Held(), h.Deadline(), before, h.Err())
	}
	if n := pgtest.One[int64](t, p.new(), "SELECT count(*) FROM mutex_lock WHERE lock_name = 'job' AND instance_id = $1", h.Info().Term); n != 1 {
		t.Errorf("%d rows of this hold on the new primary", n)
	}
	pgtest.Must(t, h.Release(t.Context()))
	g, err := b.TryAcquire(t.Context(), "job")
	pgtest.Must(t, err)
	if g.Token() <= h.Token() {
		t.Errorf("token %d after %d", g.Token(), h.Token())
	}
	pgtest.Must(t, g.Release(t.Context()))
}

// Row 42. A primary that became a standby under its clients: what is held lasts
// until its deadline and ends with that as the reason, and attempts are refused
// with it, neither as busy nor as unknown.
func TestRow42PrimaryTurnsReadOnly(t *testing.T) {
	t.Parallel()
	primary := pgtest.New(t, pgtest.Options{})
	dsn := primary.DSN("postgres", pgtest.Superuser)
	pgtest.Must(t, lease.Migrate(t.Context(), dsn, nil))
	const stale = 6 * time.Second
	c := open(t, dsn, "a", stale)
	h, err := c.TryAcquire(t.Context(), "job")
	pgtest.Must(t, err)
	pgtest.Must(t, primary.Demote())

	for _, attempt := range []func(context.Context, string) (*pgmutex.Hold, error){c.TryAcquire, c.Acquire} {
		_, err := attempt(t.Context(), "other")
		if err == nil || errors.Is(err, pgmutex.ErrHeld) || errors.Is(err, pgmutex.ErrUnknown) ||
			!strings.Contains(err.Error(), "read-only") || !strings.Contains(err.Error(), "25006") {
			t.Errorf("an attempt: %v", err)
		}
	}
	loss := lost(t, h, stale)
	if loss.Reason() != pgmutex.LostReadOnly {
		t.Errorf("the reason: %v", loss)
	}
	if h.Held() {
		t.Error("held after its context ended")
	}
}

// A planned switch: the primary is made read-only under its sessions, and the
// standby promoted. The holder's next heartbeat is refused, drops the connection,
// and finds the new primary.
func TestSwitchoverKeepsTheHold(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	a := open(t, p.either(), "a", time.Minute)
	h, err := a.TryAcquire(t.Context(), "job")
	pgtest.Must(t, err)
	pgtest.Must(t, h.Heartbeat(t.Context())) // has a connection by now
	pgtest.Exec(t, p.old(), "ALTER SYSTEM SET default_transaction_read_only = on")
	pgtest.Exec(t, p.old(), "SELECT pg_reload_conf()")
	pgtest.WaitFor(t, "the old primary to refuse", func() bool {
		return pgtest.One[string](t, p.old(), "SHOW default_transaction_read_only") == "on"
	})
	p.follows()
	pgtest.Must(t, p.standby.Promote(t.Context()))
	promoted := time.Now()
	switched := pgtest.One[time.Time](t, p.new(), "SELECT clock_timestamp()")
	pgtest.WaitFor(t, "a heartbeat on the new primary", func() bool {
		_ = h.Heartbeat(t.Context()) // the first one is refused
		return pgtest.One[bool](t, p.new(), "SELECT last_heartbeat > $1 FROM mutex_lock WHERE lock_name = 'job'", switched)
	})
	t.Logf("a heartbeat on the new primary %v after its promotion", time.Since(promoted))
	if !h.Held() {
		t.Error(h.Err())
	}
	pgtest.Must(t, h.Release(t.Context()))
	if n := pgtest.One[int64](t, p.old(), "SELECT count(*) FROM mutex_lock"); n != 1 {
		t.Errorf("%d rows on the old primary, which nobody writes any more", n)
	}
}

// A server that stops, is stopped at once, or crashes, and is back within the time
// of trust, costs no hold: the row survives the session.
func TestRestartKeepsTheHold(t *testing.T) {
	t.Parallel()
	server := pgtest.New(t, pgtest.Options{Durable: true})
	dsn := server.DSN("postgres", pgtest.Superuser)
	pgtest.Must(t, lease.Migrate(t.Context(), dsn, nil))
	a, b := open(t, dsn, "a", time.Minute), open(t, dsn, "b", time.Minute)
	h, err := a.TryAcquire(t.Context(), "job")
	pgtest.Must(t, err)
	for name, restart := range map[string]func() error{
		"fast":      func() error { return server.Restart(pgtest.Fast) },
		"immediate": func() error { return server.Restart(pgtest.Immediate) },
		"crash":     func() error { return errors.Join(server.Kill(), server.Start()) },
	} {
		pgtest.Must(t, restart())
		pgtest.WaitFor(t, "a heartbeat after "+name, func() bool { return h.Heartbeat(t.Context()) == nil && h.Held() })
		pgtest.WaitFor(t, "a rival's answer after "+name, func() bool {
			_, err := b.TryAcquire(t.Context(), "job")
			return errors.Is(err, pgmutex.ErrHeld)
		})
	}
	pgtest.Must(t, h.Release(t.Context()))
}

// The advisory engine's hold ends with its session, however the failover went; the
// next one is taken where the primary is now.
func TestAdvisoryHoldEndsWithItsPrimary(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	c, err := advisory.Open(t.Context(), p.either(), &pgmutex.Options{HolderID: "a"})
	pgtest.Must(t, err)
	closeAfter(t, c)
	h, err := c.TryAcquire(t.Context(), "job")
	pgtest.Must(t, err)
	killed := time.Now()
	p.failover()
	loss := lost(t, h, 10*time.Second)
	if loss.Reason() != pgmutex.LostSessionEnded {
		t.Errorf("the reason: %v", loss)
	}
	g, err := c.TryAcquire(t.Context(), "job")
	pgtest.Must(t, err)
	t.Logf("held again %v after the kill", time.Since(killed))
	pgtest.Must(t, g.Release(t.Context()))
}
