package memory

import (
	"context"

	"github.com/pgmutex/pgmutex"
)

// Open returns a client on the store: a process of its own. It is pgmutex.New
// with [Store.Engine], except that faults set for Options.HolderID touch its
// start already. Close it before the test, or its bubble, ends.
func (s *Store) Open(ctx context.Context, opts *pgmutex.Options) (*pgmutex.Client, error) {
	label := ""
	if opts != nil {
		label = opts.HolderID
	}
	return pgmutex.New(ctx, s.engine(label), opts)
}
