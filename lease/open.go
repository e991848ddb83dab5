package lease

import (
	"context"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/internal/pgdb"
)

// Open returns a client whose locks are rows of the table public.mutex_lock in
// the database behind source: a connection string (empty: libpq's environment
// variables), a *pgxpool.Pool or a *sql.DB. It is pgmutex.New with the engine
// that [New] makes with the default settings.
//
// It connects and verifies the tables and creates nothing ([Migrate] does); with
// Options.Lazy the first use does that. What is passed in is never closed or
// changed: a pool is only a recipe for connections of our own, a *sql.DB lends
// some.
func Open[S pgdb.Source](ctx context.Context, source S, opts *pgmutex.Options) (*pgmutex.Client, error) {
	eng, err := New(source, nil)
	if err != nil {
		return nil, err
	}
	return pgmutex.New(ctx, eng, opts)
}
