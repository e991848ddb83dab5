package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/internal/faultconn"
)

// A storm is a run of many clients under many faults.
type storm struct {
	seed    uint64
	length  time.Duration
	clients int
	workers int // of each client
	locks   int
	every   time.Duration // between two faults, on average
	faults  []string      // kinds, see fault; each as likely as it is often named
	// cut is the share of attempts whose context ends about when they do.
	cut float64
}

// everything is each kind of fault, the telling ones more often: a delayed reply
// found the bugs that noise did not.
var everything = []string{
	"delay replies", "delay replies", "delay replies", "delay requests", "delay requests",
	"hold replies", "hold replies", "hold requests", "freeze", "freeze", "freeze",
	"cut", "reset", "half-close", "refuse", "terminate", "terminate",
	"lock row", "lock row", "cut after commit", "cut after commit", "dribble",
}

// seed is the environment's, or another one each time.
func seed(t testing.TB) uint64 {
	t.Helper()
	s := rand.Uint64() >> 1
	if text := os.Getenv("PGMUTEX_FAULTS_SEED"); text != "" {
		var err error
		if s, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("PGMUTEX_FAULTS_SEED: %v", err)
		}
	}
	t.Logf("PGMUTEX_FAULTS_SEED=%d", s)
	return s
}

// length is the environment's, or otherwise.
func length(t testing.TB, otherwise time.Duration) time.Duration {
	t.Helper()
	text := os.Getenv("PGMUTEX_FAULTS_LENGTH")
	if text == "" {
		return otherwise
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("PGMUTEX_FAULTS_LENGTH: %v", err)
	}
	return d
}

// source makes the random numbers of one participant, which do not depend on
// what the others do.
func (s storm) source(who string, n int) *rand.Rand {
	h := uint64(14695981039346656037)
	for _, b := range []byte(who) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return rand.New(rand.NewPCG(s.seed, h+uint64(n)))
}

// blow runs the storm in the world.
func (s storm) blow(w *world, more ...func(ctx context.Context)) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), s.length)
	defer cancel()
	var clients []*client
	for i := range s.clients {
		clients = append(clients, w.client(fmt.Sprintf("c%d", i)))
	}
	victim := w.client("victim") // while nothing keeps it from looking at the tables
	var all sync.WaitGroup
	for i, c := range clients {
		for j := range s.workers {
			all.Go(func() { s.work(ctx, w, c, s.source("worker", i*100+j)) })
		}
	}
	all.Go(func() { s.weather(ctx, w, clients) })
	all.Go(func() { s.suffer(ctx, w, victim, s.source("victim", 0)) })
	for _, f := range more {
		all.Go(func() { f(ctx) })
	}
	all.Wait()
	for _, c := range append(clients, victim) {
		c.heal()
	}
}

// suffer takes a lock, is cut off until it is lost, and works on until the guard
// refuses that, again and again.
func (s storm) suffer(ctx context.Context, w *world, c *client, rng *rand.Rand) {
	for ctx.Err() == nil {
		attempt, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		h, err := c.take(attempt, fmt.Sprintf("lock-%d", rng.IntN(s.locks)), true)
		cancel()
		if err != nil {
			continue
		}
		way := []faultconn.Direction{faultconn.Requests, faultconn.Replies, faultconn.Both}[rng.IntN(3)]
		w.history.add(call{Op: "fault", Name: c.name, Start: now(), End: now(), Outcome: "freeze " + way.String()})
		c.proxy.Freeze(way)
		work, cancel := context.WithTimeout(h.Context(), 5*time.Second)
		pass(work, 5*time.Second)
		cancel()
		for range 40 {
			if h.write(context.WithoutCancel(ctx), nil) == "refused" || ctx.Err() != nil {
				break
			}
			pass(ctx, 100*time.Millisecond)
		}
		c.heal()
		_ = h.end(context.WithoutCancel(ctx))
	}
}

// work takes locks, works under them, and gives them back, until ctx ends.
func (s storm) work(ctx context.Context, w *world, c *client, rng *rand.Rand) {
	for ctx.Err() == nil {
		name := fmt.Sprintf("lock-%d", rng.IntN(s.locks))
		limit, wait := time.Duration(500+rng.IntN(3500))*time.Millisecond, rng.Float64() < 0.7
		if rng.Float64() < s.cut {
			limit = time.Duration(100+rng.IntN(1900)) * time.Microsecond
		}
		// Not of ctx: what is under way when the storm ends is waited for.
		attempt, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
		h, err := c.take(attempt, name, wait)
		cancel()
		if err != nil {
			var why *pgmutex.AcquireError
			if !errors.As(err, &why) {
				w.violation("%s: acquire %q: %T is no *AcquireError: %v", c.name, name, err, err)
			}
			if !errors.Is(err, pgmutex.ErrHeld) { // often no server to be reached
				pass(ctx, time.Duration(20+rng.IntN(100))*time.Millisecond)
			}
			continue
		}
		s.under(ctx, h, rng)
		_ = h.end(context.WithoutCancel(ctx))
	}
}

// under is the work: guarded writes, now and then a slow one, now and then one
// that goes on although the hold is lost.
func (s storm) under(ctx context.Context, h *holding, rng *rand.Rand) {
	slow := func(most int) func() {
		d := time.Duration(rng.IntN(most)) * time.Millisecond
		return func() { pass(ctx, d) }
	}
	unbound := context.WithoutCancel(ctx)
	for range 1 + rng.IntN(3) {
		pause := slow(3)
		if rng.IntN(60) == 0 {
			pause = slow(2500)
		}
		if h.write(unbound, pause) == "refused" {
			break
		}
	}
	if rng.IntN(12) == 0 { // long enough to be caught by a fault
		work, cancel := context.WithTimeout(h.Context(), time.Duration(rng.IntN(2500))*time.Millisecond)
		pass(work, s.length)
		cancel()
	} else {
		pass(h.Context(), time.Duration(rng.IntN(8))*time.Millisecond)
	}
	if h.look() {
		return
	}
	// Lost, and still at it: the guard has to keep it away from whoever is next.
	for range 1 + rng.IntN(20) {
		if h.write(unbound, slow(50)) == "refused" {
			return
		}
		pass(ctx, 100*time.Millisecond)
	}
}

// weather starts faults until ctx ends, and ends them.
func (s storm) weather(ctx context.Context, w *world, clients []*client) {
	rng := s.source("weather", 0)
	var all sync.WaitGroup
	defer all.Wait()
	for {
		pass(ctx, time.Duration(rng.ExpFloat64()*float64(s.every)))
		if ctx.Err() != nil {
			return
		}
		kind, c := s.faults[rng.IntN(len(s.faults))], clients[rng.IntN(len(clients))]
		d := time.Duration(50+rng.IntN(2450)) * time.Millisecond
		part, lock := rng.IntN(100), fmt.Sprintf("lock-%d", rng.IntN(s.locks))
		w.history.add(call{Op: "fault", Name: c.name, Start: now(), End: now() + d, Outcome: kind})
		all.Go(func() { w.fault(ctx, c, kind, d, part, lock) })
	}
}

// fault makes one fault and ends it after d, or when ctx ends.
func (w *world) fault(ctx context.Context, c *client, kind string, d time.Duration, part int, lock string) {
	p, conns := c.proxy, c.proxy.Conns()
	var conn *faultconn.Conn
	if len(conns) > 0 {
		conn = conns[part%len(conns)]
	}
	latency := time.Duration(part) * 14 * time.Millisecond // up to 1.4 s, more than trust
	switch {
	case kind == "delay replies":
		p.Delay(faultconn.Replies, latency)
		pass(ctx, d)
		p.Delay(faultconn.Replies, 0)
	case kind == "delay requests":
		p.Delay(faultconn.Requests, latency)
		pass(ctx, d)
		p.Delay(faultconn.Requests, 0)
	case kind == "hold replies" && conn != nil:
		conn.Freeze(faultconn.Replies)
		pass(ctx, d)
		conn.Thaw(faultconn.Replies)
	case kind == "hold requests" && conn != nil:
		conn.Freeze(faultconn.Requests)
		pass(ctx, d)
		conn.Thaw(faultconn.Requests)
	case kind == "freeze":
		p.Freeze(faultconn.Both)
		pass(ctx, d)
		p.Thaw(faultconn.Both)
	case kind == "cut":
		p.Cut()
	case kind == "reset":
		p.Reset()
	case kind == "half-close" && conn != nil:
		conn.HalfClose([]faultconn.Direction{faultconn.Requests, faultconn.Replies}[part%2])
	case kind == "refuse":
		p.Refuse(true)
		p.Cut()
		pass(ctx, d)
		p.Refuse(false)
	case kind == "dribble":
		p.Chunk(faultconn.Both, 1)
		pass(ctx, d)
		p.Chunk(faultconn.Both, 0)
	case kind == "cut after commit":
		tag := []string{"SELECT", "INSERT"}[part/2%2] // of renewals and releases, of grants
		trap := p.Trap(faultconn.CommandComplete(tag), []faultconn.Action{faultconn.Cut, faultconn.Reset}[part%2])
		pass(ctx, d)
		p.Remove(trap)
	case kind == "terminate":
		w.quietly(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name LIKE 'pgmutex%' ORDER BY random() LIMIT 1`, nil)
	case kind == "lock row":
		w.quietly(ctx, `SELECT 1 FROM mutex_lock WHERE lock_name = $1 FOR UPDATE`, func() { pass(ctx, d) }, lock)
	}
}

// quietly runs a statement of somebody else's, whose errors are part of the
// game, in a transaction that stays open while then runs.
func (w *world) quietly(ctx context.Context, sql string, then func(), args ...any) {
	unbound, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(unbound, w.dsn)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	tx, err := conn.Begin(unbound)
	if err != nil {
		return
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := tx.Exec(unbound, sql, args...); err == nil && then != nil {
		then()
	}
}

// TestStorm is the sample of every "go test".
func TestStorm(t *testing.T) {
	noLeaks(t)
	s := storm{
		seed: seed(t), length: length(t, 15*time.Second), clients: 5, workers: 3, locks: 5,
		every: 150 * time.Millisecond, faults: everything, cut: 0.1,
	}
	w := newWorld(t, nil)
	s.blow(w)
	w.judge(demand{"acquire granted", "acquire unknown", "acquire held", "takeover", "lost", "write committed", "write refused", "fault"})
}
