package advisory

import (
	"context"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/internal/pgdb"
)

// Open returns a client whose locks are session advisory locks in the database
// behind source: a connection string (empty: libpq's environment variables), a
// *pgxpool.Pool or a *sql.DB. It is pgmutex.New with the engine that [New] makes
// with the default settings.
//
// It connects and verifies that the server can be trusted with locks; with
// Options.Lazy the first use does that. Nothing has to be created. What is passed
// in is never closed or changed: a pool is only a recipe for connections of our
// own, a *sql.DB lends one for as long as anything is held.
func Open[S pgdb.Source](ctx context.Context, source S, opts *pgmutex.Options) (*pgmutex.Client, error) {
	eng, err := New(source, nil)
	if err != nil {
		return nil, err
	}
	return pgmutex.New(ctx, eng, opts)
}
