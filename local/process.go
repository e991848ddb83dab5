package local

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pgmutex/pgmutex/engine"
)

var (
	errNotStarted = errors.New("local: the engine is not started")
	errStarted    = errors.New("local: the engine is started already")
	errClosed     = errors.New("local: the engine is closed")
)

// nameLimit is the lease engine's, in characters.
const nameLimit = 64

// A process is one client's engine. It has one connection to the file, used by
// one call at a time, and no goroutine of its own.
type process struct {
	path    string
	opts    Options
	makeDir bool // the directory is ours to make
	host    machine
	client  string // names this client in the waiting lines

	// turn has room for one and is held while anything below is used. (A mutex
	// would not let go when a context ends.)
	turn    chan struct{}
	started bool
	closed  bool
	boot    string
	db      *database           // nil before Start, and after a failure
	places  map[string]struct{} // the lines in which we may have a place
}

var (
	_ engine.Engine    = (*process)(nil)
	_ engine.Queuer    = (*process)(nil)
	_ engine.Inspector = (*process)(nil)
	_ engine.Forcer    = (*process)(nil)
)

func newProcess(path string, opts Options, host machine) *process {
	return &process{
		path:   path,
		opts:   opts,
		host:   host,
		client: crand.Text()[:16],
		turn:   make(chan struct{}, 1),
		places: map[string]struct{}{},
	}
}

// Describe implements [engine.Engine].
func (p *process) Describe() engine.Description {
	return engine.Description{
		Name: "local",
		Defaults: engine.Timing{
			Heartbeat:    10 * time.Second,
			AlertAfter:   30 * time.Second,
			StaleAfter:   600 * time.Second,
			PollInterval: 100 * time.Millisecond,
		},
		MinStaleAfter: 100 * time.Millisecond,
		MaxStaleAfter: 7 * 24 * time.Hour,
		Elapsed:       elapsed,
		NameLimit:     nameLimit,
		PerHoldTiming: true,
		Tokens:        true,
	}
}

// Start implements [engine.Engine]. Unlike other engines it creates what is not
// there. The store never tells anything unasked, so the sink is not used.
func (p *process) Start(ctx context.Context, _ engine.Sink) error {
	if err := p.enter(ctx); err != nil {
		return err
	}
	defer p.leave()
	switch {
	case p.closed:
		return errClosed
	case p.started:
		return errStarted
	}
	p.boot = p.host.boot()
	if err := p.open(ctx); err != nil {
		return err
	}
	p.started = true
	return nil
}

// Close implements [engine.Engine]. It gives up the places in all lines.
func (p *process) Close(ctx context.Context) error {
	if err := p.enter(ctx); err != nil {
		return err
	}
	defer p.leave()
	if p.closed {
		return nil
	}
	if p.db != nil && len(p.places) > 0 {
		// Failing is harmless: the lines pass over who is gone.
		_ = p.attend(ctx, begin, func() error { return p.giveUp(p.now(), p.places) })
	}
	p.closed = true
	p.drop()
	return nil
}

// enter waits for the connection to be ours.
func (p *process) enter(ctx context.Context) error {
	if ctx.Err() == nil {
		select {
		case p.turn <- struct{}{}:
			return nil
		case <-ctx.Done():
		}
	}
	return fmt.Errorf("local: %s: %w", p.path, context.Cause(ctx))
}

func (p *process) leave() { <-p.turn }

// drop closes the connection; the next use makes another.
func (p *process) drop() {
	if p.db != nil {
		p.db.close()
		p.db = nil
	}
}

// open connects, creating the store where there is none.
func (p *process) open(ctx context.Context) error {
	return p.patiently(ctx, func() error {
		opening.Lock()
		defer opening.Unlock()
		info, err := p.prepare()
		if err != nil {
			return err
		}
		// Where power losses cannot be told from each other, every commit has to
		// survive them, for the tokens' sake.
		db, err := connect(p.path, info, p.boot == "")
		if err != nil {
			return err
		}
		if err := db.verify(p.boot); err != nil {
			db.close()
			return err
		}
		p.db = db
		return nil
	})
}

// How transactions begin. One that may write takes its turn at once: taking it
// later fails if anybody has written since.
const (
	look  = "BEGIN"
	begin = "BEGIN IMMEDIATE"
)

// view runs fn in a transaction that only looks and waits for nobody.
func (p *process) view(ctx context.Context, fn func() error) error { return p.work(ctx, look, fn) }

// update runs fn in the only transaction that may write at the time. Fn is run
// again if another process was in the way, so it starts by forgetting what it
// did. An error that does not match errInDoubt means that nothing was changed.
func (p *process) update(ctx context.Context, fn func() error) error { return p.work(ctx, begin, fn) }

func (p *process) work(ctx context.Context, how string, fn func() error) error {
	if err := p.enter(ctx); err != nil {
		return err
	}
	defer p.leave()
	switch {
	case p.closed:
		return errClosed
	case !p.started:
		return errNotStarted
	}
	if p.db != nil && p.db.moved() {
		// Whoever opens the path now finds another file, and so must we: the
		// holders learn from their next heartbeat that their rows are not there.
		p.drop()
	}
	if p.db == nil {
		if err := p.open(ctx); err != nil {
			return err
		}
	}
	err := p.attend(ctx, how, fn)
	if errors.Is(err, errNewBoot) {
		if err = p.enterBoot(ctx); err == nil {
			err = p.attend(ctx, how, fn)
		}
	}
	if err != nil && broken(err) {
		p.drop()
	}
	return err
}

// attend runs one transaction, as soon as no other process is in the way.
func (p *process) attend(ctx context.Context, how string, fn func() error) error {
	return p.patiently(ctx, func() error { return p.db.transact(how, fn) })
}

// patiently calls fn until no other process is in the way any more, or ctx has
// ended. Others take a fraction of a millisecond, unless they are stopped in
// the middle of it or the disk is slow.
func (p *process) patiently(ctx context.Context, fn func() error) error {
	const shortest, longest = 100 * time.Microsecond, 5 * time.Millisecond
	for pause := shortest; ; pause = min(2*pause, longest) {
		err := fn()
		if err == nil || !busy(err) || errors.Is(err, errInDoubt) {
			return err
		}
		timer := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("local: other processes were using the file all the time: %w: %w", context.Cause(ctx), err)
		}
	}
}
