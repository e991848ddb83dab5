package faults

import (
	"context"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/advisory"
	"github.com/pgmutex/pgmutex/internal/pgtest"
	"github.com/pgmutex/pgmutex/lease"
)

// The least time that the advisory engine allows, and what is trusted of it.
const (
	session = 3 * time.Second
	trusted = session / 3 * 2
)

// newSessions is newWorld for the advisory engine, with tokens.
//
// When the server ends a session by itself, its lock is free before its client
// can have heard of that. So what is asserted is that the client hears of it
// within slack, and how long it took is printed. Faults that keep the client from
// hearing belong elsewhere: there, two thirds of StaleAfter are the bound.
func newSessions(t testing.TB, s *pgtest.Server) *world {
	t.Helper()
	w := newWorld(t, s)
	w.sessions, w.allowed = true, slack
	pgtest.Exec(t, w.dsn, "ALTER TABLE fault_counter ADD COLUMN token bigint NOT NULL DEFAULT 0")
	return w
}

// open opens a client of the world's engine.
func (w *world) open(ctx context.Context, dsn string, opts *pgmutex.Options) (*pgmutex.Client, error) {
	if !w.sessions {
		return lease.Open(ctx, dsn, opts)
	}
	eng, err := advisory.New(dsn, &advisory.Options{Table: "public.mutex_lock", DirectSession: w.addr != ""})
	if err != nil {
		return nil, err
	}
	return pgmutex.New(ctx, eng, opts)
}

// fenced is increment where nothing guards a transaction: the counter itself
// refuses tokens lower than the highest that has read it.
func (h *holding) fenced(ctx context.Context, pause func()) (string, error) {
	rows, err := h.c.app.Query(ctx, `INSERT INTO fault_counter AS c (name, n, token) VALUES ($1, 0, $2)
		ON CONFLICT (name) DO UPDATE SET token = $2 WHERE c.token <= $2 RETURNING n`, h.Name(), h.Token())
	if err != nil {
		return "failed", err
	}
	var n int64
	found := rows.Next()
	if found {
		err = rows.Scan(&n)
	}
	rows.Close()
	if err == nil {
		err = rows.Err()
	}
	switch {
	case err != nil:
		return "failed", err
	case !found:
		return "refused", nil
	}
	if pause != nil {
		pause()
	}
	tx, err := h.c.app.Begin(ctx)
	if err != nil {
		return "failed", err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	tag, err := tx.Exec(ctx, `UPDATE fault_counter SET n = $2 WHERE name = $1 AND token = $3`, h.Name(), n+1, h.Token())
	switch {
	case err != nil:
		return "failed", err
	case tag.RowsAffected() == 0:
		return "refused", nil
	}
	if _, err := tx.Exec(ctx, `INSERT INTO fault_log (name, n, token) VALUES ($1, $2, $3)`, h.Name(), n+1, h.Token()); err != nil {
		return "failed", err
	}
	return committed(tx.Commit(ctx))
}

// locked is how many sessions hold a name's key.
func (w *world) locked(name string) int64 {
	w.t.Helper()
	return pgtest.One[int64](w.t, w.dsn, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND ((classid::bigint << 32) | objid::bigint) = $1`, pgmutex.AdvisoryID(name))
}

// unlocked waits until no session holds a name's key.
func (w *world) unlocked(name string) {
	w.t.Helper()
	pgtest.WaitFor(w.t, name+" to be unlocked", func() bool { return w.locked(name) == 0 })
}

// audible is every fault of which the client of a session that ends is told.
var audible = []string{
	"delay replies", "delay replies", "delay requests", "delay requests", "hold replies", "hold replies", "hold requests",
	"freeze", "freeze", "cut", "reset", "refuse", "cut after commit", "cut after commit", "dribble",
}

// prompt is every fault beside which the end of a session is heard of at once,
// for where the server ends sessions.
var prompt = []string{"delay requests", "hold requests", "cut", "reset", "refuse", "cut after commit"}

// TestAdvisoryStorm is TestStorm for the advisory engine.
func TestAdvisoryStorm(t *testing.T) {
	noLeaks(t)
	s := storm{
		seed: seed(t), length: length(t, 10*time.Second), clients: 5, workers: 3, locks: 5,
		every: 200 * time.Millisecond, faults: audible, cut: 0.1,
	}
	w := newSessions(t, nil)
	s.blow(w)
	w.judge(demand{"acquire granted", "acquire unknown", "acquire held", "lost", "write committed", "write refused", "fault"})
}
