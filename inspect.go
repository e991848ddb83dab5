package pgmutex

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/pgmutex/pgmutex/engine"
)

// Plain data that engines and clients share; see package engine for the fields.
type (
	// Status is a lock as its store shows it.
	Status = engine.Status

	// State is the condition of a lock.
	State = engine.State

	// PastHold is a hold that has ended.
	PastHold = engine.PastHold

	// End says how a PastHold ended.
	End = engine.End

	// LossReason says why a hold ended against its owner's will.
	LossReason = engine.LossReason
)

const (
	StateFree  = engine.StateFree
	StateHeld  = engine.StateHeld
	StateLate  = engine.StateLate  // no heartbeat for the holder's AlertAfter
	StateStale = engine.StateStale // anybody may take it over

	LostTakenOver    = engine.LostTakenOver
	LostExpired      = engine.LostExpired
	LostReleased     = engine.LostReleased
	LostSessionEnded = engine.LostSessionEnded
	LostReadOnly     = engine.LostReadOnly
	LostRowGone      = engine.LostRowGone

	EndReleased  = engine.EndReleased
	EndTakenOver = engine.EndTakenOver
	EndForced    = engine.EndForced
)

// ForceOptions are the options of ForceRelease.
type ForceOptions struct {
	// Reason is recorded in the history.
	Reason string

	// Now removes the hold at once. Without it the holder is asked to stop,
	// learns of it at its next heartbeat, and gives the lock back when its work
	// has ended.
	Now bool
}

// List yields the status of every lock in the store, whoever holds it, by name;
// of this client's namespace only if it has one. The names are as this client
// would give them. It ends at the first error, which it yields. Engines that
// cannot look yield errors.ErrUnsupported.
func (c *Client) List(ctx context.Context) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		inspector, err := c.inspector(ctx)
		if err != nil {
			yield(Status{}, err)
			return
		}
		for s, err := range inspector.List(ctx) {
			if err != nil {
				yield(Status{}, fmt.Errorf("pgmutex: list: %w", err))
				return
			}
			if name, ok := c.core.ownName(s.Name); ok && !yield(c.core.status(s, name), nil) {
				return
			}
		}
	}
}

// Inspect returns the status of one lock, StateFree if nobody holds it. Engines
// that cannot look answer errors.ErrUnsupported.
func (c *Client) Inspect(ctx context.Context, name string) (Status, error) {
	full, err := c.core.fullName(name)
	if err != nil {
		return Status{}, err
	}
	inspector, err := c.inspector(ctx)
	if err != nil {
		return Status{}, err
	}
	s, err := inspector.Inspect(ctx, full)
	if err != nil {
		return Status{}, fmt.Errorf("pgmutex: inspect %q: %w", name, err)
	}
	s.Name = full
	return c.core.status(s, name), nil
}

// History yields the ended holds of name, or of all names if it is empty, the
// newest first, as far back as the store keeps them. It ends at the first
// error, which it yields. Engines that keep none yield errors.ErrUnsupported.
func (c *Client) History(ctx context.Context, name string) iter.Seq2[PastHold, error] {
	return func(yield func(PastHold, error) bool) {
		full := ""
		var err error
		if name != "" {
			full, err = c.core.fullName(name)
		}
		var inspector engine.Inspector
		if err == nil {
			inspector, err = c.inspector(ctx)
		}
		if err != nil {
			yield(PastHold{}, err)
			return
		}
		for p, err := range inspector.History(ctx, full) {
			if err != nil {
				yield(PastHold{}, fmt.Errorf("pgmutex: history: %w", err))
				return
			}
			var ok bool
			if p.Name, ok = c.core.ownName(p.Name); ok && !yield(p, nil) {
				return
			}
		}
	}
}

// ForceRelease ends somebody else's hold: the very one that seen shows, as it
// came from List or Inspect. A later holder of the name cannot be hit. The
// request and its reason are recorded in the history.
//
// The error matches ErrNotHeld when the lock is free, ErrHeld when it has
// changed hands since, fs.ErrPermission when the right is missing, and
// errors.ErrUnsupported when the engine cannot.
func (c *Client) ForceRelease(ctx context.Context, seen Status, opts *ForceOptions) error {
	full, err := c.core.fullName(seen.Name)
	if err != nil {
		return err
	}
	forcer, ok := c.core.engine.(engine.Forcer)
	if !ok {
		return fmt.Errorf("pgmutex: force release %q: the %s engine cannot: %w", seen.Name, c.core.desc.Name, errors.ErrUnsupported)
	}
	if seen.Term == "" {
		return fmt.Errorf("pgmutex: force release %q: %w", seen.Name, ErrNotHeld)
	}
	if err := c.core.ready(ctx); err != nil {
		return err
	}
	how := engine.Force{By: c.core.holder}
	if opts != nil {
		how.Reason, how.Now = opts.Reason, opts.Now
	}
	target := seen
	target.Name = full
	err = forcer.ForceRelease(ctx, target, how)
	switch {
	case errors.Is(err, engine.ErrGone):
		err = join(ErrNotHeld, err)
	case errors.Is(err, engine.ErrChanged):
		err = join(ErrHeld, err)
	}
	if err != nil {
		return fmt.Errorf("pgmutex: force release %q: %w", seen.Name, err)
	}
	return nil
}

func (c *Client) inspector(ctx context.Context) (engine.Inspector, error) {
	i, ok := c.core.engine.(engine.Inspector)
	if !ok {
		return nil, fmt.Errorf("pgmutex: the %s engine cannot look at the store: %w", c.core.desc.Name, errors.ErrUnsupported)
	}
	if err := c.core.ready(ctx); err != nil {
		return nil, err
	}
	return i, nil
}

// ownName returns a name in the store as this client would give it; false if it
// is outside of the client's namespace.
func (c *core) ownName(full string) (string, bool) { return strings.CutPrefix(full, c.prefix) }

// status completes what an engine says.
func (c *core) status(s Status, name string) Status {
	if s.ID == 0 && s.Name != "" {
		s.ID = engine.NameID(s.Name)
	}
	s.Name = name
	if s.Engine == "" {
		s.Engine = c.desc.Name
	}
	return s
}
