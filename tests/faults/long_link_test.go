//go:build faults && long

package faults

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/advisory"
	"github.com/pgmutex/pgmutex/internal/faultconn"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// Row 26: a link that becomes slow, uneven, and gives one byte at a time. Nothing that
// is held is lost while what is trusted is enough for a new connection, which takes
// several round trips; an attempt may take too long, and says so.
func TestN26SlowLink(t *testing.T) {
	for name, fresh := range engines {
		for _, latency := range []time.Duration{50 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second} {
			t.Run(fmt.Sprint(name, " ", latency), func(t *testing.T) {
				t.Parallel()
				w := fresh(t, nil)
				s := storm{seed: seed(t)}
				rng := s.source("jitter", 0)
				c := w.client("far", func(o *pgmutex.Options) { o.StaleAfter, o.Heartbeat = time.Minute, 0 })
				kept := c.must("all-along")
				c.proxy.Chunk(faultconn.Both, 1)
				ctx, cancel := context.WithTimeout(t.Context(), length(t, 90*time.Second))
				defer cancel()
				var all sync.WaitGroup
				all.Go(func() {
					for ctx.Err() == nil {
						c.proxy.Delay(faultconn.Both, latency/2+time.Duration(rng.Int64N(int64(latency/2))))
						pass(ctx, time.Second)
					}
				})
				all.Go(func() {
					for ctx.Err() == nil {
						h, err := c.take(context.WithoutCancel(ctx), "job", false)
						if err == nil {
							err = h.end(context.WithoutCancel(ctx))
						}
						if err != nil { // longer than an attempt, or a release, may take
							t.Log(err)
						}
						pass(ctx, 2*latency)
					}
				})
				least := time.Hour
				for ctx.Err() == nil {
					least = min(least, time.Until(kept.Deadline()))
					pass(ctx, 20*time.Millisecond)
				}
				all.Wait()
				t.Logf("least trust left: %v of 40s", least)
				if !kept.look() {
					t.Errorf("lost: %v", kept.Err())
				}
				c.heal()
				pgtest.Must(t, kept.end(t.Context()))
				w.judge(demand{"acquire granted"})
			})
		}
	}
}

// Row 27: a link that is up for a second and down for a second. A lease goes on;
// an advisory hold ends with each session, and never overlaps the next.
func TestN27Flapping(t *testing.T) {
	for name, fresh := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := fresh(t, nil)
			c, rival := w.client("c", longTimes), w.client("rival", longTimes)
			ctx, cancel := context.WithTimeout(t.Context(), length(t, 5*time.Minute))
			defer cancel()
			var all sync.WaitGroup
			all.Go(func() {
				for down := true; ctx.Err() == nil; down = !down {
					c.proxy.Refuse(down)
					if down {
						w.history.add(call{Op: "fault", Outcome: "down", Start: now()})
						c.proxy.Cut()
					}
					pass(ctx, time.Second)
				}
				c.heal()
			})
			all.Go(func() { // somebody else wants it all the time
				for ctx.Err() == nil {
					if h, err := rival.take(ctx, "job", true); err == nil {
						pass(ctx, 50*time.Millisecond)
						_ = h.end(context.WithoutCancel(ctx))
					}
				}
			})
			for ctx.Err() == nil {
				h, err := c.take(ctx, "job", true)
				if err != nil {
					pass(ctx, 20*time.Millisecond)
					continue
				}
				work, done := context.WithTimeout(h.Context(), 5*time.Second)
				pass(work, 5*time.Second)
				done()
				if err := h.Err(); err != nil && !w.sessions {
					t.Errorf("a lease was lost: %v", err)
				}
				_ = h.end(context.WithoutCancel(ctx))
			}
			all.Wait()
			want := demand{"acquire granted", "fault"}
			if w.sessions {
				want = append(want, "lost")
			}
			w.judge(want)
		})
	}
}

// Row 43: behind a transaction pooler with two connections. The advisory engine
// refuses that.
func TestN43TransactionPooler(t *testing.T) {
	w := newWorld(t, pgtest.New(t, pgtest.Options{}))
	b := pgtest.NewBouncer(t, w.server, "transaction", pgtest.BouncerOptions{PoolSize: 2})
	if c, err := advisory.Open(t.Context(), b.DSN(w.dsn), nil); !errors.Is(err, errors.ErrUnsupported) {
		if c != nil {
			pgtest.Must(t, c.Close(t.Context()))
		}
		t.Errorf("the advisory engine behind a pooler: %v", err)
	}
	w.addr = b.Addr()
	s := storm{seed: seed(t), length: length(t, 30*time.Second), clients: 4, workers: 3, locks: 5, every: 300 * time.Millisecond, faults: everything, cut: 0.05}
	s.blow(w)
	w.through(b)
	w.judge(demand{"acquire granted", "takeover", "lost", "write committed", "fault"})
}

// Row 44: the pooler drops its connections again and again: after a second, by
// RECONNECT and by KILL. In session mode an advisory hold is told.
func TestN44PoolerReconnects(t *testing.T) {
	for name, fresh := range engines {
		t.Run(name, func(t *testing.T) {
			w := fresh(t, pgtest.New(t, pgtest.Options{}))
			w.promise(trusted)
			mode, size := "transaction", 2
			if w.sessions {
				mode, size = "session", 30
			}
			b := pgtest.NewBouncer(t, w.server, mode, pgtest.BouncerOptions{PoolSize: size, Settings: map[string]string{"server_lifetime": "1"}})
			w.addr = b.Addr()
			database := pgtest.One[string](t, w.dsn, "SELECT current_database()::text")
			s := storm{seed: seed(t), length: length(t, 30*time.Second), clients: 4, workers: 2, locks: 4, every: time.Second, faults: prompt}
			s.blow(w, func(ctx context.Context) {
				for n := 0; ctx.Err() == nil; n++ {
					pass(ctx, 2*time.Second)
					commands := []string{"RECONNECT"}
					if n%2 == 1 {
						commands = []string{"KILL " + database, "RESUME " + database}
					}
					for _, command := range commands {
						w.history.add(call{Op: "pooler", Outcome: command, Start: now()})
						if err := b.Admin(context.WithoutCancel(ctx), command); err != nil {
							w.violation("%s: %v", command, err)
						}
					}
				}
			})
			w.through(b)
			w.judge(demand{"acquire granted", "lost", "write committed", "pooler"})
		})
	}
}

// through closes the clients and ends the pooler's own idle connections, which
// keep the last client's name.
func (w *world) through(b *pgtest.Bouncer) {
	w.t.Helper()
	for _, c := range w.clients {
		c.shut()
	}
	database := pgtest.One[string](w.t, w.dsn, "SELECT current_database()::text")
	pgtest.Must(w.t, b.Admin(w.t.Context(), "KILL "+database))
}
