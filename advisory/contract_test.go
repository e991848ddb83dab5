package advisory_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/advisory"
	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/enginetest"
	"github.com/pgmutex/pgmutex/internal/contract"
	"github.com/pgmutex/pgmutex/internal/pgtest"
	"github.com/pgmutex/pgmutex/lease"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// sources are the ways to say where the database is.
var sources = map[string]func(t testing.TB, dsn string, opts *advisory.Options) (engine.Engine, error){
	"DSN": func(_ testing.TB, dsn string, opts *advisory.Options) (engine.Engine, error) {
		return advisory.New(dsn, opts)
	},
	"Pool": func(t testing.TB, dsn string, opts *advisory.Options) (engine.Engine, error) {
		pool, err := pgxpool.New(t.Context(), dsn)
		if err != nil {
			return nil, err
		}
		t.Cleanup(pool.Close)
		return advisory.New(pool, opts)
	},
	"SQL": func(t testing.TB, dsn string, opts *advisory.Options) (engine.Engine, error) {
		config, err := pgx.ParseConfig(dsn)
		if err != nil {
			return nil, err
		}
		db := stdlib.OpenDB(*config)
		t.Cleanup(func() { _ = db.Close() })
		return advisory.New(db, opts)
	},
	"Foreign": func(t testing.TB, dsn string, opts *advisory.Options) (engine.Engine, error) {
		opts.DirectSession = true
		return advisory.New(foreignDB(t, dsn), opts)
	},
}

func TestContract(t *testing.T) {
	for _, mode := range []struct {
		source         string
		listen, tokens bool
	}{
		{"DSN", true, false}, {"DSN", false, false}, {"Pool", true, true}, {"Pool", false, false}, {"SQL", true, false},
		{"Foreign", false, false}, // a driver that hears no notifications
	} {
		name := mode.source + "/PollOnly"
		if mode.listen {
			name = mode.source + "/Listen"
		}
		t.Run(name, func(t *testing.T) {
			enginetest.Run(t, func(t *testing.T) enginetest.Harness {
				return contractHarness(t, mode.source, mode.listen, mode.tokens)
			})
		})
	}
}

func BenchmarkContract(b *testing.B) {
	enginetest.Benchmarks(b, func(b *testing.B) enginetest.Harness { return contractHarness(b, "Pool", true, false) })
}

// contractHarness is a database of its own, with a relay before each client that
// can be made to fail.
func contractHarness(t testing.TB, source string, listen, tokens bool) enginetest.Harness {
	dsn := pgtest.Shared(t).Database(t)
	own := advisory.Options{PollOnly: !listen && source != "Foreign"}
	if tokens {
		own.Table = "public.mutex_lock"
		pgtest.Must(t, lease.Migrate(t.Context(), dsn, nil))
	}
	build := func(dsn string) (engine.Engine, error) {
		opts := own
		return sources[source](t, dsn, &opts)
	}
	var relays contract.Relays
	h := enginetest.Harness{
		Abilities: enginetest.Shared | enginetest.Presence | enginetest.Force,
		Scale:     3 * time.Second,
		Workers:   10,
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
		Faulter: relays.Faulter(),
	}
	if listen {
		h.Abilities |= enginetest.Hints
	}
	if listen && source != "SQL" { // a lent connection does not show what notifications say
		h.Abilities |= enginetest.Ask
	}
	if tokens {
		h.Abilities |= enginetest.Tokens
	}
	return h
}
