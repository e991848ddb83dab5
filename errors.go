package pgmutex

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/keeper"
)

// Sentinels, for errors.Is; all of them arrive wrapped. What an engine cannot
// do matches errors.ErrUnsupported, a missing right fs.ErrPermission.
var (
	// ErrHeld is matched when somebody else certainly holds the lock. The error
	// then also holds a *HeldError.
	ErrHeld = errors.New("lock is held")

	// ErrUnknown is matched when it cannot be told whether the lock was granted.
	// The caller does not hold it; a grant that was made, or still arrives, is
	// taken back in the background.
	ErrUnknown = errors.New("outcome unknown")

	// ErrLost is matched when a hold ended against its owner's will. The error
	// then also is a *LostError.
	ErrLost = errors.New("lock lost")

	// ErrNotHeld is matched when something was asked of a hold that has ended,
	// by release or by loss, or of a name that this client does not hold.
	ErrNotHeld = errors.New("lock not held")

	// ErrClosed is matched once Client.Close has been called.
	ErrClosed = errors.New("client closed")
)

// An AcquireError is what every failed acquisition returns. It wraps exactly
// one of ErrHeld (by a *HeldError), ErrUnknown, ErrClosed or the reason that the
// engine or the store gave, and beside it the cause of the context's end if that
// is why the acquisition is over. A context that had ended before anything was
// asked is wrapped alone.
type AcquireError struct {
	Name    string        // as the caller gave it
	Reason  string        // in a few words
	Timeout time.Duration // AcquireOptions.Wait, if that is what ran out
	Err     error
}

func (e *AcquireError) Error() string {
	return fmt.Sprintf("pgmutex: acquire %q: %s", e.Name, e.Reason)
}

func (e *AcquireError) Unwrap() error { return e.Err }

// A HeldError says who holds a lock. It matches ErrHeld. It is information and
// may be out of date on arrival: never decide by it. Fields that could not be
// learnt are zero.
type HeldError struct {
	Name      string
	Holder    string        // label, see Options.HolderID
	Since     time.Time     // by the store's clock
	Remaining time.Duration // until the holder is stale, if no heartbeat comes
	Details   map[string]string
}

func (e *HeldError) Error() string {
	var b strings.Builder
	b.WriteString("held")
	if e.Holder != "" {
		fmt.Fprintf(&b, " by %q", e.Holder)
	}
	if !e.Since.IsZero() {
		fmt.Fprintf(&b, " since %s", e.Since.Format(time.RFC3339))
	}
	if e.Remaining > 0 {
		fmt.Fprintf(&b, ", stale in %s without a heartbeat", e.Remaining.Round(100*time.Millisecond))
	}
	return b.String()
}

// Is reports that a HeldError matches ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

func heldError(name string, r *engine.Rival) *HeldError {
	e := &HeldError{Name: name}
	if r != nil {
		e.Holder, e.Since, e.Details = r.Holder, r.Since, r.Details
		e.Remaining = max(r.StaleAfter-r.Age, 0)
	}
	return e
}

// A LostError says that a hold ended against its owner's will. It matches
// ErrLost and ErrNotHeld. There is one for each lost hold; wherever the loss is
// told, it is this one.
type LostError struct {
	Name  string
	Token int64
	Err   error // what the engine said, if anything

	ending *keeper.Ending
}

func (e *LostError) Error() string {
	reason, by := e.Reason(), e.By()
	msg := fmt.Sprintf("pgmutex: lost %q: %s", e.Name, orElse(string(reason), "unknown reason"))
	switch {
	case by == "":
	case reason == LostReleased: // "by operator" is said already
		msg += fmt.Sprintf(" %q", by)
	default:
		msg += fmt.Sprintf(" by %q", by)
	}
	return msg
}

// Unwrap returns Err.
func (e *LostError) Unwrap() error { return e.Err }

// Is reports that a LostError matches ErrLost and ErrNotHeld.
func (e *LostError) Is(target error) bool { return target == ErrLost || target == ErrNotHeld }

// Reason returns why the hold was lost, as far as is known: it may change once,
// within a second of the loss, when the store has been asked. Hooks.Lost comes
// after that.
func (e *LostError) Reason() LossReason {
	if e.ending == nil {
		return ""
	}
	reason, _ := e.ending.Reason()
	return reason
}

// By returns the label of whoever holds the lock now or ended the hold, empty
// where that is not known. It may change together with Reason.
func (e *LostError) By() string {
	if e.ending == nil {
		return ""
	}
	_, by := e.ending.Reason()
	return by
}

// joined is an error that says one thing and matches several.
type joined struct {
	msg  string
	errs []error
}

func (e *joined) Error() string   { return e.msg }
func (e *joined) Unwrap() []error { return e.errs }

// acquireError makes the one error of a failed acquisition. timeout is set when
// the acquisition's own limit on waiting is what ended it.
func acquireError(name string, res keeper.Result, timeout time.Duration) *AcquireError {
	e := &AcquireError{Name: name, Timeout: timeout}
	var why error
	switch {
	case res.Closed:
		why = ErrClosed
		e.Reason = ErrClosed.Error()
	case res.Busy:
		held := heldError(name, res.Rival)
		why = held
		e.Reason = held.Error()
	case res.Unknown:
		why = ErrUnknown
		e.Reason = "outcome unknown, being cleaned up"
	}
	if res.Err != nil {
		if e.Reason != "" {
			e.Reason += ": "
		}
		e.Reason += res.Err.Error()
		why = join(why, res.Err)
	}
	if timeout > 0 {
		e.Reason = fmt.Sprintf("timeout after %s: %s", timeout, orElse(e.Reason, "no answer"))
	} else if res.Ctx != nil {
		e.Reason = orElse(e.Reason, "not asked") + ": " + res.Ctx.Error()
		why = join(why, res.Ctx)
	}
	if why == nil {
		why = context.DeadlineExceeded // the limit ran out before anything was asked
	}
	e.Err = why
	return e
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// join is errors.Join on one line.
func join(a, b error) error {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return &joined{msg: a.Error() + ": " + b.Error(), errs: []error{a, b}}
}

// contextError returns why ctx ended: its error, and the cause beside it where
// that is another.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || errors.Is(cause, err) {
		return cause
	}
	return join(err, cause)
}
