package lease

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/pgmutex/pgmutex/internal/pgdb"
)

// servers remembers the servers whose tokens are known to be in order: the meta
// row names their timeline, or this role may not ask for it. A server is known by
// the microsecond of its start. Its timeline cannot change without a new start,
// except by the promotion of a standby, which grants nothing before; and a meta
// row that was raised for it stays so. Therefore a grant has to bring no more
// than the time of its server's start. A note on the connection would not do: a
// pooler may pass it from one server to the next.
type servers struct {
	mu    sync.Mutex // of writers
	known atomic.Pointer[inOrder]
}

// inOrder is a set of servers that does not change any more. A grant is judged by
// the set as it was before its request was sent: a token that was drawn before
// somebody raised the sequence is not made good by finding it raised afterwards.
type inOrder map[int64]struct{}

func (set *inOrder) has(server int64) bool {
	if set == nil {
		return false
	}
	_, ok := (*set)[server]
	return ok
}

// manyServers bounds the memory; forgetting costs a grant that is given back.
const manyServers = 100

func (v *servers) now() *inOrder { return v.known.Load() }

func (v *servers) learn(server int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	old := v.known.Load()
	if old.has(server) {
		return
	}
	set := inOrder{server: {}}
	if old != nil && len(*old) < manyServers {
		maps.Copy(set, *old)
	}
	v.known.Store(&set)
}

// timelines is what the server that answers now says about itself.
type timelines struct {
	server    int64 // its start
	current   int64 // its timeline, unreadable where the role may not ask
	raisedFor *int64
}

// unreadable stands for a timeline that this role may not ask for.
const unreadable = 0

func (t timelines) inOrder() bool {
	return t.current == unreadable || t.raisedFor != nil && *t.raisedFor == t.current
}

// timelinesNow asks, and remembers a server that is in order.
func (s *store) timelinesNow(ctx context.Context, db *pgdb.DB) (timelines, error) {
	t, found, err := single(ctx, db, pgdb.Work, s.sql.timeline, nil, func(row pgdb.Row) (t timelines, err error) {
		return t, row.Scan(&t.server, &t.current, &t.raisedFor)
	})
	switch pgdb.Classify(err) {
	case pgdb.Denied, pgdb.Definite, pgdb.Undefined, pgdb.ReadOnly:
		// It may not be asked, or it is a standby.
		t, found, err = single(ctx, db, pgdb.Work, s.sql.server, nil, func(row pgdb.Row) (t timelines, err error) {
			return t, row.Scan(&t.server)
		})
	}
	switch {
	case err != nil:
		return t, err
	case !found:
		return t, errors.New("the server did not tell its timeline")
	case t.inOrder() && !db.Facts().Standby:
		// Not a standby: one may be promoted without a new start.
		s.servers.learn(t.server)
	}
	return t, nil
}

// raise puts the tokens above all that an earlier timeline can have given out, if
// nobody has yet.
func (s *store) raise(ctx context.Context, db *pgdb.DB) error {
	for attempt := 0; ; attempt++ {
		t, err := s.timelinesNow(ctx, db)
		if err != nil || t.inOrder() {
			return err
		}
		_, err = query(ctx, db, pgdb.Work, s.sql.raise, []any{t.current}, func(row pgdb.Row) (n int64, err error) {
			return n, row.Scan(&n)
		})
		if err == nil {
			continue // look whether it is in order now
		}
		if pgdb.Classify(err) != pgdb.RowLocked || !pause(ctx, attempt) {
			return fmt.Errorf("raise the tokens for timeline %d: %w", t.current, err)
		}
	}
}
