package lease

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/clock"
	"github.com/pgmutex/pgmutex/internal/pgdb"
	"github.com/pgmutex/pgmutex/internal/schema"
)

// New returns a lease engine with settings of its own, for pgmutex.New, which
// starts and closes it. It does no I/O. An error is about source or opts.
//
// The source is only a recipe for connections: a pool is neither used, changed
// nor closed; a *sql.DB lends connections and is not closed.
func New[S pgdb.Source](source S, opts *Options) (engine.Engine, error) {
	set, err := opts.settings()
	if err != nil {
		return nil, err
	}
	open := func() (*pgdb.DB, error) { return pgdb.Open(source, pgdb.Options{}) }
	db, err := open()
	if err != nil {
		return nil, err
	}
	return newStore(set, open, db), nil
}

// store is the engine.
type store struct {
	set  settings
	sql  *statements
	log  *slog.Logger
	open func() (*pgdb.DB, error)

	channel string // ours, for notifications
	servers servers
	taken   taken

	aroundUntil atomic.Int64 // see Renew

	mu     sync.Mutex
	db     *pgdb.DB // nil after a Start that failed, until the next one
	line   *line    // nil before Start
	closed bool

	pruning sync.Mutex
	tasks   sync.WaitGroup // short tasks beside the line: pruning
}

var (
	_ engine.Engine    = (*store)(nil)
	_ engine.Guarder   = (*store)(nil)
	_ engine.Queuer    = (*store)(nil)
	_ engine.Inspector = (*store)(nil)
	_ engine.Forcer    = (*store)(nil)
	_ engine.Sender    = (*store)(nil)
)

var errNotStarted = errors.New("the lease engine is not started")

func newStore(set settings, open func() (*pgdb.DB, error), db *pgdb.DB) *store {
	return &store{
		set:  set,
		sql:  newStatements(set.names),
		log:  slog.New(slog.DiscardHandler),
		open: open,
		db:   db,
		// 26 characters of base32: nobody listens to it by accident, and a
		// channel that nobody knows is one that nobody floods.
		channel: "pgmutex_" + lower(rand.Text()),
	}
}

func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + ('a' - 'A')
		}
	}
	return string(b)
}

// Describe implements [engine.Engine].
func (s *store) Describe() engine.Description {
	d := engine.Description{
		Name: "lease",
		Defaults: engine.Timing{
			Heartbeat:    10 * time.Second,
			AlertAfter:   30 * time.Second,
			StaleAfter:   600 * time.Second,
			PollInterval: 500 * time.Millisecond,
		},
		MinStaleAfter: minStaleAfter,
		MaxStaleAfter: maxStaleAfter,
		TrustCap:      s.set.peerStaleAfter,
		Elapsed:       clock.Elapsed,
		NameLimit:     64,
		PerHoldTiming: true,
		Tokens:        true,
	}
	if s.set.noPeers {
		d.TrustCap = 0
	}
	return d
}

// Start implements [engine.Engine].
func (s *store) Start(ctx context.Context, sink engine.Sink) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return pgdb.ErrClosed
	}
	if s.line != nil {
		return errors.New("the lease engine is started already")
	}
	if s.db == nil {
		db, err := s.open()
		if err != nil {
			return err
		}
		s.db = db
	}
	if err := schema.Usable(ctx, s.db, s.set.names); err != nil {
		// Nothing is left open; the next Start begins anew.
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeBound)
		defer cancel()
		err = errors.Join(err, s.db.Close(closing))
		s.db = nil
		return err
	}
	// Asked now, so that not even the first grant needs a second round trip. An
	// error here shows again with the first grant, if it still matters then.
	_, _ = s.timelinesNow(ctx, s.db)
	s.line = newLine(s, s.db, sink)
	return nil
}

// Close implements [engine.Engine].
func (s *store) Close(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	db, line := s.db, s.line
	s.mu.Unlock()
	if line != nil {
		line.close(ctx)
	}
	var err error
	if db != nil {
		err = db.Close(ctx)
	}
	s.tasks.Wait() // of short tasks whose connections have been closed
	return err
}

// started returns what Start made.
func (s *store) started() (*pgdb.DB, *line, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, nil, pgdb.ErrClosed
	case s.line == nil:
		return nil, nil, errNotStarted
	}
	return s.db, s.line, nil
}
