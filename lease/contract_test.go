package lease_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/enginetest"
	"github.com/pgmutex/pgmutex/internal/contract"
	"github.com/pgmutex/pgmutex/internal/pgtest"
	"github.com/pgmutex/pgmutex/lease"
)

// sources are the ways to say where the database is.
var sources = map[string]func(t testing.TB, dsn string, opts *lease.Options) (engine.Engine, error){
	"DSN": func(_ testing.TB, dsn string, opts *lease.Options) (engine.Engine, error) {
		return lease.New(dsn, opts)
	},
	"Pool": func(t testing.TB, dsn string, opts *lease.Options) (engine.Engine, error) {
		pool, err := pgxpool.New(t.Context(), dsn)
		if err != nil {
			return nil, err
		}
		t.Cleanup(pool.Close)
		return lease.New(pool, opts)
	},
	"SQL": func(t testing.TB, dsn string, opts *lease.Options) (engine.Engine, error) {
		config, err := pgx.ParseConfig(dsn)
		if err != nil {
			return nil, err
		}
		db := stdlib.OpenDB(*config)
		t.Cleanup(func() { _ = db.Close() })
		return lease.New(db, opts)
	},
}

// ways are how a client gets to the server. A pooler in session mode gives each
// client a server connection of its own; in the others three serve all.
var ways = map[string]func(t testing.TB, s *pgtest.Server) (through func(dsn string) string){
	"direct":      func(testing.TB, *pgtest.Server) func(string) string { return nil },
	"transaction": bouncer("transaction", 3),
	"session":     bouncer("session", 150),
	"statement":   bouncer("statement", 3),
}

func bouncer(mode string, size int) func(testing.TB, *pgtest.Server) func(string) string {
	return func(t testing.TB, s *pgtest.Server) func(string) string {
		return pgtest.NewBouncer(t, s, mode, pgtest.BouncerOptions{PoolSize: size}).DSN
	}
}

// A combination is one row of the table of what the contract is kept over.
type combination struct {
	source, way string
	pollOnly    bool
	alone       bool // no two requests share a statement
}

func (c combination) String() string {
	name := c.source + "/" + c.way
	if c.pollOnly {
		name += "/PollOnly"
	}
	if c.alone {
		name += "/Alone"
	}
	return name
}

// combinations is the table: every source by every way, and polling by choice.
// Lib/pq is in module tests, which may require it.
var combinations = []combination{
	{"DSN", "direct", false, false}, {"DSN", "direct", true, false},
	{"DSN", "direct", false, true},
	{"DSN", "transaction", false, false}, {"DSN", "session", false, false}, {"DSN", "statement", false, false},
	{"Pool", "direct", false, false}, {"Pool", "transaction", false, false},
	{"SQL", "direct", false, false}, {"SQL", "transaction", false, false}, {"SQL", "session", false, false}, {"SQL", "statement", false, false},
}

// covered are combinations that another one stands for, with the reason.
var covered = map[combination]string{
	{"Pool", "direct", true, false}:     "a pool is a recipe for the connections of a string, and polling knows no source",
	{"Pool", "session", false, false}:   "a pool is a recipe for the connections of a string",
	{"Pool", "statement", false, false}: "a pool is a recipe for the connections of a string",
	{"SQL", "direct", true, false}:      "polls over a *sql.DB are what its poolers get",
}

// TestCombinations fails when a way to use the engine is not tried.
func TestCombinations(t *testing.T) {
	for source := range sources {
		for way := range ways {
			for _, pollOnly := range []bool{false, true} {
				c := combination{source, way, pollOnly, false}
				if pollOnly && way != "direct" {
					continue // nobody listens there anyway
				}
				if slices.Contains(combinations, c) == (covered[c] != "") {
					t.Errorf("%v: it has to be in one of the tables, with a reason in the second", c)
				}
			}
		}
	}
}

// underTest is the table, and under the race detector the part of it that runs
// different Go code: there the rest differs in what the server's side does.
func underTest() []combination {
	if !pgtest.Race {
		return combinations
	}
	return []combination{{"DSN", "direct", false, false}, {"DSN", "direct", true, false}, {"SQL", "direct", false, false}, {"Pool", "transaction", false, false}}
}

// TestContract runs the whole contract over all combinations at once: its cases
// spend most of their time waiting.
func TestContract(t *testing.T) {
	s := pgtest.New(t, pgtest.Options{Settings: map[string]string{"max_connections": "900"}})
	through := map[string]func(string) string{}
	for name, way := range ways {
		through[name] = way(t, s)
	}
	var all sync.WaitGroup
	var kept sync.Map
	for i, c := range underTest() {
		// The server goes with them: to drop databases of many tables takes long.
		name := fmt.Sprintf("contract_%d", i)
		pgtest.Exec(t, s.DSN("postgres", pgtest.Superuser), "CREATE DATABASE "+name)
		dsn := s.DSN(name, pgtest.Superuser)
		all.Go(func() {
			t.Run(c.String(), func(t *testing.T) {
				enginetest.Run(t, func(t *testing.T) enginetest.Harness {
					return contractHarness(t, dsn, through[c.way], c)
				})
				kept.Store(c, true)
			})
		})
	}
	all.Wait()
	if !strings.Contains(flag.Lookup("test.run").Value.String(), "/") { // nothing was left out on purpose
		for _, c := range underTest() {
			if _, ok := kept.Load(c); !ok {
				t.Errorf("the contract was not run over %v", c)
			}
		}
	}
}

func BenchmarkContract(b *testing.B) {
	dsn := pgtest.Shared(b).Database(b)
	enginetest.Benchmarks(b, func(b *testing.B) enginetest.Harness {
		return contractHarness(b, dsn, nil, combination{source: "Pool", way: "direct"})
	})
}

// alone is an engine without group commit: what comes together is sent one after
// the other.
type alone struct {
	engine.Engine
	engine.Guarder
	engine.Queuer
	engine.Inspector
	engine.Forcer
}

func withoutBatches(eng engine.Engine, yes bool) engine.Engine {
	if !yes {
		return eng
	}
	return alone{eng, eng.(engine.Guarder), eng.(engine.Queuer), eng.(engine.Inspector), eng.(engine.Forcer)}
}

func (e alone) Acquire(ctx context.Context, batch []engine.Request) []engine.Answer {
	return each(ctx, batch, e.Engine.Acquire)
}

func (e alone) Renew(ctx context.Context, batch []engine.Term) []engine.Standing {
	return each(ctx, batch, e.Engine.Renew)
}

func (e alone) Release(ctx context.Context, batch []engine.Term) []engine.Removal {
	return each(ctx, batch, e.Engine.Release)
}

func each[In, Out any](ctx context.Context, batch []In, call func(context.Context, []In) []Out) (all []Out) {
	for i := range batch {
		all = append(all, call(ctx, batch[i:i+1])...)
	}
	return all
}

var tables atomic.Int64

// contractHarness is a table of its own, with a relay before each client that
// can be made to fail.
func contractHarness(t testing.TB, direct string, through func(string) string, c combination) enginetest.Harness {
	opts := &lease.Options{Table: fmt.Sprintf("lock_%d", tables.Add(1)), PollOnly: c.pollOnly}
	dsn := direct
	if through != nil {
		dsn = through(dsn)
	}
	pgtest.Must(t, lease.Migrate(t.Context(), dsn, opts))
	build := func(dsn string) (engine.Engine, error) {
		eng, err := sources[c.source](t, dsn, opts)
		if err != nil {
			return nil, err
		}
		return withoutBatches(eng, c.alone), nil
	}
	var relays contract.Relays
	h := enginetest.Harness{
		Abilities: enginetest.PerHoldTiming | enginetest.Tokens | enginetest.Guard |
			enginetest.Inspect | enginetest.History | enginetest.Force | enginetest.Ask |
			enginetest.Queue | enginetest.Durable,
		Scale:   3 * time.Second,
		Workers: 4,
		Client: func(t testing.TB, o *pgmutex.Options) (*pgmutex.Client, error) {
			if _, faulty := t.(*testing.T); faulty {
				return relays.Open(t, dsn, o, build)
			}
			eng, err := build(dsn)
			if err != nil {
				return nil, err
			}
			return pgmutex.New(t.Context(), eng, o)
		},
		Transaction: func(t testing.TB, body func(pgmutex.Exec) error) error {
			conn := pgtest.Conn(t, direct)
			return pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
				return body(func(ctx context.Context, query string, args ...any) (int64, error) {
					tag, err := tx.Exec(ctx, query, args...)
					return tag.RowsAffected(), err
				})
			})
		},
		Faulter: relays.Faulter(),
	}
	if c.way == "direct" && !c.pollOnly {
		h.Abilities |= enginetest.Hints
	}
	return h
}

// Prepared statements, settings of the session and LISTEN do not work through
// every pooler, and none of its clients may notice: six holders with quick
// heartbeats share three server connections, with the connection string as it
// is, and a waiter is granted the lock by polling.
func TestPoolersLoseNoHeartbeat(t *testing.T) {
	s := pgtest.Shared(t)
	for mode, size := range map[string]int{"transaction": 3, "session": 30, "statement": 3} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.NewBouncer(t, s, mode, pgtest.BouncerOptions{PoolSize: size}).DSN(s.Database(t))
			pgtest.Must(t, lease.Migrate(t.Context(), dsn, nil))
			var good, failed atomic.Int64
			options := &pgmutex.Options{
				Heartbeat: 200 * time.Millisecond, StaleAfter: 30 * time.Second,
				Hooks: []pgmutex.Hooks{{Heartbeat: func(_ context.Context, e pgmutex.Event) {
					if e.Err != nil {
						failed.Add(1)
						t.Errorf("a heartbeat failed: %v", e.Err)
						return
					}
					good.Add(1)
				}}},
			}
			open := func() *pgmutex.Client {
				c, err := lease.Open(t.Context(), dsn, options)
				pgtest.Must(t, err)
				t.Cleanup(func() { _ = c.Close(context.Background()) })
				return c
			}
			var holds []*pgmutex.Hold
			for i := range 6 {
				h, err := open().Acquire(t.Context(), fmt.Sprintf("lock %d", i))
				pgtest.Must(t, err)
				holds = append(holds, h)
			}
			// Five seconds' worth of them.
			pgtest.WaitFor(t, "heartbeats", func() bool { return good.Load() >= 6*25 || failed.Load() > 0 })

			waiter := open()
			granted := make(chan error, 1)
			go func() {
				h, err := waiter.Acquire(t.Context(), "lock 0")
				if err == nil {
					err = h.Release(t.Context())
				}
				granted <- err
			}()
			pgtest.WaitFor(t, "the waiter to stand in the line", func() bool {
				st, err := waiter.Inspect(t.Context(), "lock 0")
				return err == nil && st.Waiters == 1
			})
			for _, h := range holds {
				pgtest.Must(t, h.Err())
				pgtest.Must(t, h.Release(t.Context()))
			}
			pgtest.Must(t, <-granted)
		})
	}
}
