package pgmutex

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/keeper"
)

// A Client takes locks and keeps them. It is meant to live as long as its
// process, and all of its methods may be called concurrently. Two goroutines of
// one client exclude each other exactly as two processes do.
type Client struct {
	core     *core
	settings AcquireOptions
	invalid  error // what is wrong with settings, told by the first acquisition
}

// core is what a client shares with all that With made of it.
type core struct {
	engine  engine.Engine
	desc    engine.Description
	keeper  *keeper.Keeper
	events  *dispatcher
	opts    Options
	timing  engine.Timing
	holder  string
	prefix  string
	details map[string]string
	holds   atomic.Int64 // against MaxHolds

	started  atomic.Bool
	starting chan struct{} // capacity 1, held while the engine is being started
	closing  chan struct{} // capacity 1, held while the client is being closed
	closed   atomic.Bool   // Close has been called
	ended    atomic.Bool   // Close has returned
}

// New returns a client on an engine, which it owns from then on and closes with
// itself. The engine packages' Open functions are shortcuts for it.
//
// Unless Options.Lazy is set it starts the engine, which connects and verifies
// that the store can be used, within ctx; it never creates anything there. On
// failure the engine has been closed and nothing is left behind.
func New(ctx context.Context, e engine.Engine, opts *Options) (*Client, error) {
	if e == nil {
		return nil, errors.New("pgmutex: engine is nil")
	}
	c, err := newCore(e, opts)
	if err == nil && !c.opts.Lazy {
		err = c.start(ctx)
	}
	if err != nil {
		// Nothing has been started, or it failed to start: closing only frees.
		_ = e.Close(context.WithoutCancel(ctx))
		return nil, err
	}
	return &Client{core: c}, nil
}

func newCore(e engine.Engine, opts *Options) (*core, error) {
	c := &core{
		engine:   e,
		desc:     e.Describe(),
		details:  ownDetails(),
		starting: make(chan struct{}, 1),
		closing:  make(chan struct{}, 1),
	}
	if opts != nil {
		c.opts = *opts
	}
	if err := c.opts.check(); err != nil {
		return nil, err
	}
	var err error
	if c.timing, err = c.opts.timing(c.desc); err != nil {
		return nil, err
	}
	if c.opts.MaxHolds == 0 {
		c.opts.MaxHolds = c.desc.MaxHolds
	}
	if c.holder = c.opts.HolderID; c.holder == "" {
		c.holder = defaultHolderID()
	}
	if c.opts.Namespace != "" {
		c.prefix = c.opts.Namespace + "/"
	}
	elapsed := c.desc.Elapsed
	if elapsed == nil {
		origin := time.Now()
		elapsed = func() time.Duration { return time.Since(origin) }
	}
	c.events = newDispatcher(c)
	c.keeper = keeper.New(keeper.Config{
		Engine:         e,
		Elapsed:        elapsed,
		PollInterval:   c.timing.PollInterval,
		ReleaseTimeout: orDefault(c.opts.ReleaseTimeout, defaultReleaseTimeout),
		Observe:        c.events.observe,
	})
	return c, nil
}

// ownDetails says where a hold is from.
func ownDetails() map[string]string {
	d := map[string]string{"pid": strconv.Itoa(os.Getpid())}
	if host, err := os.Hostname(); err == nil {
		d["host"] = strings.ToValidUTF8(host, "?")
	}
	if len(os.Args) > 0 {
		d["program"] = strings.ToValidUTF8(filepath.Base(os.Args[0]), "?")
	}
	return d
}

// start makes sure that the engine is started. A failure leaves it to the next
// use to try again.
func (c *core) start(ctx context.Context) error {
	if c.started.Load() {
		return nil
	}
	select {
	case c.starting <- struct{}{}:
		defer func() { <-c.starting }()
	case <-ctx.Done():
		return contextError(ctx)
	}
	switch {
	case c.started.Load():
		return nil
	case c.closed.Load():
		return ErrClosed
	}
	if err := c.engine.Start(ctx, c.keeper); err != nil {
		return err
	}
	c.started.Store(true)
	return nil
}

// ready is start for everything but acquisitions.
func (c *core) ready(ctx context.Context) error {
	if c.closed.Load() {
		return fmt.Errorf("pgmutex: %w", ErrClosed)
	}
	return c.start(ctx)
}

// With returns the same client with other settings for the locks that are taken
// through it: it shares the holds, the registry and Close. The settings replace
// those of an earlier With as a whole. An invalid setting is returned by the
// first acquisition, one that the engine lacks as errors.ErrUnsupported.
func (c *Client) With(settings AcquireOptions) *Client {
	return &Client{core: c.core, settings: settings, invalid: settings.check(c.core.desc)}
}

// HolderID returns the label by which others see this client.
func (c *Client) HolderID() string { return c.core.holder }

// HeldCount returns how many holds this client has. It asks the local clock,
// not the store.
func (c *Client) HeldCount() int { return len(c.core.keeper.Held("")) }

// IsHeld tells whether this client holds name. It asks the local clock, not the
// store, and says nothing about other clients. A name that breaks the rules is
// not held.
func (c *Client) IsHeld(name string) bool {
	full, err := c.core.fullName(name)
	return err == nil && len(c.core.keeper.Held(full)) > 0
}

// Release ends this client's holds of name, whoever took them, as Hold.Release
// does. Without one it returns an error matching ErrNotHeld.
func (c *Client) Release(ctx context.Context, name string) error {
	full, err := c.core.fullName(name)
	if err != nil {
		return err
	}
	held := c.core.keeper.Held(full)
	if len(held) == 0 {
		return fmt.Errorf("pgmutex: release %q: %w", name, ErrNotHeld)
	}
	_, err = c.core.releaseAll(ctx, held)
	return err
}

// ReleaseAll gives back everything that this client holds, now, without waiting
// for the work that goes on under it, and returns how many holds it ended. Each
// is released as Hold.Release does it. The client remains usable. For a
// shutdown that lets the work finish there is Close.
func (c *Client) ReleaseAll(ctx context.Context) (int, error) {
	return c.core.releaseAll(ctx, c.core.keeper.Held(""))
}

func (c *core) releaseAll(ctx context.Context, held []*keeper.Lease) (int, error) {
	type outcome struct {
		removal keeper.Removal
		err     error
	}
	outcomes := make(chan outcome, len(held))
	for _, l := range held {
		go func() {
			removal, err := l.Release(ctx)
			outcomes <- outcome{removal, c.releaseError(l, removal, err)}
		}()
	}
	ended := 0
	var errs []error
	for range held {
		o := <-outcomes
		if o.removal == keeper.Confirmed || o.removal == keeper.InProgress {
			ended++
		}
		errs = append(errs, o.err)
	}
	return ended, errors.Join(errs...)
}

// Close ends the client. It refuses new acquisitions and ends all waits with
// ErrClosed; ends the context of every hold with ErrClosed, and goes on
// renewing; waits until the owners have released their holds, or ctx ends; and
// then frees everything and joins every goroutine.
//
// What nobody works under any more is given back even when ctx has ended
// before the call, within ReleaseTimeout. Holds whose owners are still at work
// then end; they are left to go stale in the store, since giving them back
// would let the next holder in beside that work, and are named in the error.
//
// A second call waits for the first one, or ctx, and returns nil. Close may be
// called from a hook.
func (c *Client) Close(ctx context.Context) error {
	core := c.core
	core.closed.Store(true)
	core.keeper.Refuse()
	// Not one select: with ctx ended it would be by chance whether we close.
	select {
	case core.closing <- struct{}{}:
	default:
		select {
		case core.closing <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
	}
	defer func() { <-core.closing }()
	if core.ended.Load() {
		return nil
	}
	for _, l := range core.keeper.Held("") {
		l.Owner().(*Hold).cancel(ErrClosed)
	}
	left := core.keeper.Close(ctx)
	var errs []error
	if len(left) > 0 {
		errs = append(errs, fmt.Errorf("pgmutex: close: still at work under %q, left to go stale: %w", left, contextError(ctx)))
	}
	// Wait for a start under way, which closing has not cancelled.
	core.starting <- struct{}{}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), orDefault(core.opts.ReleaseTimeout, defaultReleaseTimeout))
	defer cancel()
	if err := core.engine.Close(last); err != nil {
		errs = append(errs, fmt.Errorf("pgmutex: close: %w", err))
	}
	<-core.starting
	core.events.stop(ctx)
	core.ended.Store(true)
	return errors.Join(errs...)
}
