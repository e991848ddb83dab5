package pgmutex

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/keeper"
)

// Info describes a hold.
type Info struct {
	Name       string    `json:"name"` // as the caller gave it
	ID         int64     `json:"id"`   // see AdvisoryID
	Holder     string    `json:"holder"`
	Term       string    `json:"term"`                   // names this acquisition, for ever
	Token      int64     `json:"token,string,omitempty"` // fencing token; 0 where the engine has none
	AcquiredAt time.Time `json:"acquired_at"`            // UTC, by the store's clock
	Engine     string    `json:"engine"`
	Shared     bool      `json:"shared,omitempty"`
}

// A Hold is one acquisition of a lock. Its methods may be called concurrently.
// Once it has ended, by release, loss or Close, it never becomes valid again.
type Hold struct {
	core   *core
	lease  *keeper.Lease
	info   Info
	ctx    context.Context
	cancel context.CancelCauseFunc
	outer  *Hold // the hold that the acquisition itself ran under
	excess bool  // granted beyond MaxHolds, to be given back at once
	lost   atomic.Pointer[LostError]
}

type holdKey struct{}

// FromContext returns the innermost hold that ctx runs under: the contexts of
// holds and those given to the functions of Do, TryDo, Run and Singleton carry
// theirs.
func FromContext(ctx context.Context) (*Hold, bool) {
	h, ok := ctx.Value(holdKey{}).(*Hold)
	return h, ok
}

// under returns the live hold of this client and name that ctx runs under.
func (c *core) under(ctx context.Context, full string) *Hold {
	h, _ := FromContext(ctx)
	for ; h != nil; h = h.outer {
		if h.core == c && h.lease.Term().Name == full && h.Held() {
			return h
		}
	}
	return nil
}

// Name returns the name as it was given to the acquisition.
func (h *Hold) Name() string { return h.info.Name }

// Info returns the facts of this acquisition, which never change.
func (h *Hold) Info() Info { return h.info }

// Token returns the fencing token: a number that is higher for every later
// grant of this name. A resource outside the database keeps out old holders by
// refusing tokens below the highest that it has seen. It is 0 where the engine
// has none.
func (h *Hold) Token() int64 { return h.info.Token }

// Context returns the context to work under. It ends with the hold and not
// before; context.Cause then tells why: a *LostError, ErrNotHeld after a
// release, ErrClosed when Client.Close asks the work to stop. It carries the
// values of the acquisition's context, but not its end, which bounded the wait
// only (AcquireOptions.Bind adds it).
func (h *Hold) Context() context.Context { return h.ctx }

// Held tells whether the lock is still ours at this moment. It costs no I/O and
// reads the clock itself, so it is right where Context may lag: after the
// process or the host was paused. Ask it before a step that must not be taken
// twice. It is still true after Close or a bound context has asked the work to
// stop, as the lock is kept until it has stopped.
func (h *Hold) Held() bool { return h.lease.Held() }

// Err returns nil while the lock is held, and then why it is not: a *LostError,
// or an error matching ErrNotHeld after a release or ErrClosed after Close gave
// up waiting.
func (h *Hold) Err() error {
	e := h.lease.Ended()
	switch {
	case e == nil:
		return nil
	case e.Lost():
		return h.lostError(e)
	case e.Closed:
		return fmt.Errorf("pgmutex: %q: %w", h.info.Name, ErrClosed)
	}
	return fmt.Errorf("pgmutex: %q: %w", h.info.Name, ErrNotHeld)
}

// Deadline returns the time at which the hold ends by itself if no heartbeat is
// confirmed before; for watchdogs. Each confirmed heartbeat moves it. After
// the end it is not later than now.
func (h *Hold) Deadline() time.Time { return time.Now().Add(h.lease.Remaining()) }

// StaleAt returns the time before which nobody else can take the lock over,
// going by the last confirmed heartbeat; a third of StaleAfter later than
// Deadline. Whoever has to stop work that goes on after a loss has until then.
// After the end it stays where it was.
func (h *Hold) StaleAt() time.Time { return time.Now().Add(h.lease.UntilStale()) }

// Heartbeat sends a heartbeat now, beside those that are sent anyway. It
// returns nil when that was confirmed, the same error as Err when the hold has
// ended, and any other error when it could not be told: the hold is then valid
// until its deadline, and heartbeats go on.
func (h *Hold) Heartbeat(ctx context.Context) error {
	if err := h.Err(); err != nil {
		return err
	}
	err := h.lease.Renew(ctx)
	if ended := h.Err(); ended != nil {
		return ended
	}
	if err != nil {
		return fmt.Errorf("pgmutex: heartbeat of %q not confirmed: %w", h.info.Name, err)
	}
	return nil
}

// Exec runs one statement inside a transaction of the caller's and returns the
// number of rows that it selected or changed.
type Exec = engine.Exec

// Guard ties a transaction in the store's own database to this hold: it fails
// unless the hold is still ours in the store, and nobody can take it over
// until that transaction ends. What the transaction writes is then exclusive,
// with no assumption about clocks. The engine packages have forms of it for
// the usual drivers; exec serves any other.
//
// Call it at the top level of the transaction: rolling back to a savepoint made
// before it undoes it. The error matches ErrNotHeld when the hold has ended;
// whatever the error, roll the transaction back. Engines that cannot guard
// answer errors.ErrUnsupported.
func (h *Hold) Guard(ctx context.Context, exec Exec) error {
	g, ok := h.core.engine.(engine.Guarder)
	if !ok {
		return fmt.Errorf("pgmutex: guard %q: the %s engine cannot: %w", h.info.Name, h.core.desc.Name, errors.ErrUnsupported)
	}
	if err := h.Err(); err != nil {
		return err
	}
	err := g.Guard(ctx, h.lease.Term(), exec)
	if errors.Is(err, engine.ErrGone) {
		if ended := h.Err(); ended != nil {
			return ended
		}
		// The store knows better; the next heartbeat tells the hold's owner.
		return fmt.Errorf("pgmutex: guard %q: %w", h.info.Name, join(ErrNotHeld, err))
	}
	if err != nil {
		return fmt.Errorf("pgmutex: guard %q: %w", h.info.Name, err)
	}
	return nil
}

// Release gives the lock back. The hold ends here and now, before anything is
// sent; then Release waits until the store has confirmed it, for
// Options.ReleaseTimeout at most and whether or not ctx has ended.
//
// It returns nil when the lock was given back, now or by an earlier call; the
// hold's *LostError when it had been lost, each time, and sees to it that
// nothing of it stays in the store; and any other error when the release is
// not confirmed yet: it goes on in the background until it is, or the lock
// would be stale anyway.
func (h *Hold) Release(ctx context.Context) error {
	removal, err := h.lease.Release(ctx)
	return h.core.releaseError(h.lease, removal, err)
}

// releaseError makes the error of a release.
func (c *core) releaseError(l *keeper.Lease, removal keeper.Removal, err error) error {
	h := l.Owner().(*Hold)
	switch removal {
	case keeper.Confirmed:
		return nil
	case keeper.WasLost:
		return h.lostError(l.Loss())
	case keeper.WasClosed:
		return fmt.Errorf("pgmutex: release %q: %w", h.info.Name, ErrClosed)
	}
	return fmt.Errorf("pgmutex: release %q: not confirmed, going on in the background: %w", h.info.Name, err)
}

// lostError returns the one error that tells of this hold's loss.
func (h *Hold) lostError(e *keeper.Ending) *LostError {
	if err := h.lost.Load(); err != nil {
		return err
	}
	h.lost.CompareAndSwap(nil, &LostError{Name: h.info.Name, Token: h.lease.Term().Token, Err: e.Err, ending: e})
	return h.lost.Load()
}
