package pgmutex

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"time"
)

// Busy says what a function made by Singleton does while the lock is held by
// somebody else.
type Busy uint8

const (
	SkipIfHeld Busy = iota // return nil without running
	FailIfHeld             // return the error matching ErrHeld
	WaitIfHeld             // wait for the lock
)

// Singleton returns fn under the lock, with fn's own signature: each call takes
// the lock, runs fn and releases the lock, as Do does.
func (c *Client) Singleton(name string, busy Busy, fn func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		h, err := c.acquire(ctx, name, busy == WaitIfHeld && c.settings.Wait != NoWait, true)
		if err != nil {
			if busy == SkipIfHeld && errors.Is(err, ErrHeld) {
				return nil
			}
			return err
		}
		return h.work(ctx, fn)
	}
}

// RunOptions are the options of Run. Nil and zero fields mean the defaults.
type RunOptions struct {
	// MaxPause bounds the pause before contending again, which starts at a
	// fiftieth of it and doubles, with jitter. Default: 10 s.
	MaxPause time.Duration
}

const defaultMaxPause = 10 * time.Second

// Run keeps fn running under the lock, in one process of all that call it: it
// takes the lock, waiting for it, and runs fn as Do does. When fn returns an
// error or the hold is lost, it pauses and contends again; likewise when the
// store cannot be reached.
//
// It returns nil once fn has returned nil with the hold intact; the cause of
// ctx once that has ended, after fn has returned and the lock was given back;
// an error matching ErrClosed after Close; and at once what trying again cannot
// change: a bad name or option, or a missing right. It does not return fn's
// errors: what they mean is fn's to say.
func (c *Client) Run(ctx context.Context, name string, fn func(ctx context.Context) error, opts *RunOptions) error {
	maxPause := defaultMaxPause
	if opts != nil {
		if opts.MaxPause < 0 {
			return optionError("RunOptions.MaxPause", "%s is negative", opts.MaxPause)
		}
		maxPause = orDefault(opts.MaxPause, maxPause)
	}
	if full, err := c.core.fullName(name); err == nil && c.core.under(ctx, full) != nil {
		return fmt.Errorf("pgmutex: run %q inside its own work: %w", name, ErrHeld)
	}
	pause := maxPause / 50
	for {
		start := time.Now()
		h, err := c.acquire(ctx, name, true, true)
		if err == nil {
			if err = h.work(ctx, fn); err == nil {
				return nil
			}
			if time.Since(start) > maxPause {
				pause = maxPause / 50 // it went well for a while
			}
		} else if hopeless(err) && ctx.Err() == nil {
			return err
		}
		if errors.Is(err, ErrClosed) && c.core.closed.Load() {
			return fmt.Errorf("pgmutex: run %q: %w", name, ErrClosed)
		}
		timer := time.NewTimer(pause/2 + rand.N(pause/2+1))
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		pause = min(2*pause, maxPause)
	}
}

// hopeless tells whether an acquisition that failed like this will always fail.
func hopeless(err error) bool {
	for _, passing := range []error{ErrHeld, ErrUnknown} {
		if errors.Is(err, passing) {
			return false
		}
	}
	var invalid *invalidError
	return errors.As(err, &invalid) || errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrPermission)
}

// work runs fn under the hold and releases it.
func (h *Hold) work(ctx context.Context, fn func(ctx context.Context) error) (err error) {
	// Deferred, so that the lock does not outlive a panic of fn's.
	defer func() { err = h.after(ctx, err) }()
	return fn(h.ctx)
}

// Locker is the port of code that takes locks by name. It uses only types of
// the standard library, so that a consumer may as well declare its own.
type Locker interface {
	Do(ctx context.Context, name string, fn func(ctx context.Context) error) error
	TryDo(ctx context.Context, name string, fn func(ctx context.Context) error) error
	Release(ctx context.Context, name string) error
	IsHeld(name string) bool
}

// Registry is the port of code that gives everything back.
type Registry interface {
	ReleaseAll(ctx context.Context) (int, error)
	HeldCount() int
}

// Manager is both ports.
type Manager interface {
	Locker
	Registry
}

var _ Manager = (*Client)(nil)
