package pgmutex

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/keeper"
)

// Acquire takes the lock, waiting for it as long as ctx and AcquireOptions.Wait
// allow. Waiters are served in the order in which they came, where the engine
// keeps a line.
//
// On success the hold is the caller's, who must release it; ctx may end then
// without harm to it. Every failure is an *AcquireError and leaves nothing
// held: ErrHeld when the wait ended while somebody else held the lock,
// ErrUnknown when it ended with an attempt under way, ErrClosed after Close.
// When the store cannot be reached, the first attempt's error is returned; once
// the store has said that the lock is held, such errors are retried until the
// wait ends. A refusal, such as a missing right or a read-only server, is
// returned at once.
//
// Inside the work of a hold of the same name, which would wait for itself,
// ErrHeld is returned at once.
func (c *Client) Acquire(ctx context.Context, name string) (*Hold, error) {
	return c.acquire(ctx, name, c.settings.Wait != NoWait, c.settings.Bind)
}

// TryAcquire is Acquire with one attempt: it never waits for another holder, and
// takes a stale lock over at once. When the lock is held, the error matches
// ErrHeld and holds a *HeldError that says by whom. It may overtake those who
// wait in Acquire.
func (c *Client) TryAcquire(ctx context.Context, name string) (*Hold, error) {
	return c.acquire(ctx, name, false, c.settings.Bind)
}

// Do takes the lock as Acquire does, runs fn, and releases the lock once fn has
// returned or panicked. The context given to fn ends with ctx or with the hold,
// whichever is first, and context.Cause says which; it carries the hold, for
// FromContext. The lock is kept until fn has returned, also after ctx has ended.
//
// Do returns fn's error, joined with the *LostError if the hold was lost. A
// release that could not be confirmed is no error of Do's, since the work was
// done: it goes on in the background, and hooks and log tell of it.
func (c *Client) Do(ctx context.Context, name string, fn func(ctx context.Context) error) error {
	return c.do(ctx, name, c.settings.Wait != NoWait, fn)
}

// TryDo is Do without waiting for another holder, as TryAcquire is to Acquire.
func (c *Client) TryDo(ctx context.Context, name string, fn func(ctx context.Context) error) error {
	return c.do(ctx, name, false, fn)
}

func (c *Client) do(ctx context.Context, name string, wait bool, fn func(ctx context.Context) error) error {
	h, err := c.acquire(ctx, name, wait, true)
	if err != nil {
		return err
	}
	return h.work(ctx, fn)
}

// after releases the hold when the work under it has ended with err.
func (h *Hold) after(ctx context.Context, err error) error {
	switch released := h.Release(ctx); {
	case errors.Is(released, ErrLost), errors.Is(released, ErrClosed):
		if errors.Is(err, released) {
			return err // fn has told already
		}
		return errors.Join(err, released)
	}
	return err
}

func (c *Client) acquire(ctx context.Context, name string, wait, bind bool) (*Hold, error) {
	began := time.Now()
	h, err := c.take(ctx, name, wait, bind)
	if err != nil {
		c.core.events.failed(keeper.Event{
			Kind: keeper.Failed, Ctx: context.WithoutCancel(ctx), At: began, Took: time.Since(began),
			Try: !wait, Limit: max(c.settings.Wait, 0), Err: err,
		}, c.core.partialInfo(name, c.settings.Shared))
		return nil, err
	}
	return h, nil
}

// take is acquire without telling the hooks of a failure.
func (c *Client) take(ctx context.Context, name string, wait, bind bool) (*Hold, *AcquireError) {
	core := c.core
	full, err := core.fullName(name)
	if err == nil {
		err = c.invalid
	}
	if err != nil {
		err = &invalidError{err}
		return nil, &AcquireError{Name: name, Reason: strings.TrimPrefix(err.Error(), "pgmutex: "), Err: err}
	}
	if h := core.under(ctx, full); h != nil && !(h.info.Shared && c.settings.Shared) {
		held := &HeldError{Name: name, Holder: core.holder, Since: h.info.AcquiredAt, Remaining: h.lease.Remaining()}
		return nil, &AcquireError{Name: name, Reason: "held already by the work that asks for it", Err: held}
	}

	limited := ctx
	if wait && c.settings.Wait > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeoutCause(ctx, c.settings.Wait, errWaitOver)
		defer cancel()
	}
	if err := core.start(limited); err != nil {
		return nil, acquireError(name, keeper.Result{Err: err, Closed: core.closed.Load()}, 0)
	}
	if limit := int64(core.opts.MaxHolds); limit > 0 && core.holds.Load() >= limit {
		return nil, core.tooMany(name)
	}
	h, res := c.ask(limited, ctx, full, name, wait, bind)
	if h != nil && !h.excess {
		return h, nil
	}
	if h != nil {
		// Others took the last places while this one was being asked for.
		_ = h.Release(ctx)
		return nil, core.tooMany(name)
	}
	if errors.Is(res.Ctx, errWaitOver) {
		return nil, acquireError(name, res, c.settings.Wait)
	}
	if res.Ctx != nil {
		res.Ctx = contextError(ctx)
	}
	return nil, acquireError(name, res, 0)
}

func (c *core) tooMany(name string) *AcquireError {
	err := fmt.Errorf("this client holds %d locks, the most that MaxHolds allows", c.opts.MaxHolds)
	return &AcquireError{Name: name, Reason: err.Error(), Err: err}
}

// invalidError marks the caller's own mistakes, which no second try mends.
type invalidError struct{ error }

func (e *invalidError) Unwrap() error { return e.error }

var errWaitOver = errors.New("the time to wait is over")

// ask makes a Hold of what the keeper grants. limited is ctx with the limit on
// waiting, which is none of the hold's business.
func (c *Client) ask(limited, ctx context.Context, full, name string, wait, bind bool) (*Hold, keeper.Result) {
	core := c.core
	timing := c.settings.timing(core.timing, core.desc)
	base := ctx
	if !bind {
		base = context.WithoutCancel(ctx)
	}
	h := &Hold{core: core}
	h.outer, _ = FromContext(ctx)
	h.ctx, h.cancel = context.WithCancelCause(context.WithValue(base, holdKey{}, h))
	ask := keeper.Ask{
		Name:    full,
		Holder:  core.holder,
		Shared:  c.settings.Shared,
		Details: c.details(ctx),
		Timing:  timing,
		Trust:   trust(timing.StaleAfter, core.desc.TrustCap),
		Limit:   max(c.settings.Wait, 0),
		Owner:   h,
		OnGrant: func(l *keeper.Lease) {
			n := core.holds.Add(1)
			h.excess = core.opts.MaxHolds > 0 && n > int64(core.opts.MaxHolds)
			h.lease = l
			h.info = core.info(name, l.Term(), l.AcquiredAt())
		},
		OnEnd: h.ended,
	}
	var res keeper.Result
	if wait {
		res = core.keeper.Wait(limited, ask)
	} else {
		res = core.keeper.Try(limited, ask)
	}
	if res.Lease == nil {
		h.cancel(nil)
		return nil, res
	}
	if core.closed.Load() {
		// Close came between the grant and here and may have missed this one.
		h.cancel(ErrClosed)
	}
	return h, res
}

// ended is told by the keeper when the hold has ended.
func (h *Hold) ended(e *keeper.Ending) {
	h.core.holds.Add(-1)
	switch {
	case e.Lost():
		h.cancel(h.lostError(e))
	case e.Closed:
		h.cancel(ErrClosed)
	default:
		h.cancel(ErrNotHeld)
	}
}

// details returns what to show with a hold.
func (c *Client) details(ctx context.Context) map[string]string {
	if c.core.opts.Annotate == nil && len(c.settings.Details) == 0 {
		return c.core.details
	}
	d := maps.Clone(c.core.details)
	maps.Copy(d, c.settings.Details)
	if c.core.opts.Annotate != nil {
		maps.Copy(d, c.core.opts.Annotate(ctx))
	}
	return d
}

func (c *core) info(name string, term engine.Term, acquiredAt time.Time) Info {
	return Info{
		Name:       name,
		ID:         engine.NameID(term.Name),
		Holder:     c.holder,
		Term:       term.ID,
		Token:      term.Token,
		AcquiredAt: acquiredAt.UTC(),
		Engine:     c.desc.Name,
		Shared:     term.Shared,
	}
}

// partialInfo is what is known without a hold.
func (c *core) partialInfo(name string, shared bool) Info {
	return Info{Name: name, ID: engine.NameID(c.prefix + name), Holder: c.holder, Engine: c.desc.Name, Shared: shared}
}
