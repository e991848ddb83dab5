package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/exitcode"
	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/store"
)

// leaving bounds what is cleaned up once a signal has ended a wait.
const leaving = 800 * time.Millisecond

// take takes the lock. A signal ends that; whatever had been granted by then is
// given back.
func (r *runner) take(ctx context.Context) (*pgmutex.Hold, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type taken struct {
		hold *pgmutex.Hold
		err  error
	}
	done := make(chan taken, 1)
	go func() {
		hold, err := r.acquire(ctx)
		done <- taken{hold, err}
	}()
	select {
	case sig := <-r.signals.C():
		cancel()
		within(leaving, func() { r.giveBack((<-done).hold) })
		r.notes.stop()
		return nil, signalled(sig)
	case t := <-done:
		r.notes.stop()
		select {
		case sig := <-r.signals.C(): // in the same moment
			r.giveBack(t.hold)
			return nil, signalled(sig)
		default:
		}
		if t.err != nil {
			closeStore(r.store)
		}
		return t.hold, t.err
	}
}

func signalled(sig os.Signal) error { return exitcode.Signalled(int(sig.(syscall.Signal))) }

// giveBack leaves nothing behind, if that can be done in time.
func (r *runner) giveBack(hold *pgmutex.Hold) {
	within(leaving, func() {
		if hold != nil {
			_ = hold.Release(context.Background())
		}
		closeStore(r.store)
	})
}

// acquire asks for the lock, after making sure that the store is set up. Its
// errors have exit codes.
func (r *runner) acquire(ctx context.Context) (*pgmutex.Hold, error) {
	client := r.store.Client()
	if err := r.nested(ctx, client); err != nil {
		return nil, err
	}
	how := pgmutex.AcquireOptions{Wait: r.dWait, Details: map[string]string{"program": r.program()}}
	if r.noWait {
		how.Wait = pgmutex.NoWait
	}
	hold, err := store.Ready(ctx, r.store, true, func() (*pgmutex.Hold, error) {
		return client.With(how).Acquire(ctx, r.lock)
	})
	if err != nil {
		return nil, r.explain(err)
	}
	return hold, nil
}

// nested refuses to wait for a lock that this very process runs under.
func (r *runner) nested(ctx context.Context, client *pgmutex.Client) error {
	outer := outerHolds(os.Environ())
	if len(outer) == 0 {
		return nil
	}
	status, err := store.Ready(ctx, r.store, true, func() (pgmutex.Status, error) { return client.Inspect(ctx, r.lock) })
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return nil
	case err != nil:
		return r.store.Code(err)
	case status.State == pgmutex.StateStale || !slices.ContainsFunc(outer, func(h outerHold) bool { return h.is(status, r.flags.full(r.lock)) }):
		return nil
	}
	return r.busy(fmt.Errorf("%q is held by the pgmutex run that this one runs under, and would be waited for for ever", r.lock))
}

func (r *runner) busy(err error) error {
	if r.quiet {
		return &exitcode.Error{Code: r.conflictCode}
	}
	return &exitcode.Error{Code: r.conflictCode, Err: err}
}

// explain makes the message of a failed acquisition.
func (r *runner) explain(err error) error {
	var coded *exitcode.Error
	var held *pgmutex.HeldError
	var failed *pgmutex.AcquireError
	errors.As(err, &failed)
	switch {
	case errors.As(err, &coded):
		return err
	case errors.As(err, &held):
		if cause := storeGone(err); cause != nil {
			return &exitcode.Error{Code: exitcode.Unavailable, Err: fmt.Errorf("gave up after %s: the store has gone away: %w", span(r.dWait), cause)}
		}
		text := describe(held)
		if failed != nil && failed.Timeout > 0 {
			text = fmt.Sprintf("gave up after %s: %s", failed.Timeout, text)
		}
		return r.busy(errors.New(text))
	}
	return &exitcode.Error{Code: exitcode.Unavailable, Err: err}
}

// storeGone returns the error of the store that stands beside a *HeldError: the
// lock was busy once, and the store could not be asked when the wait ended.
func storeGone(err error) error {
	var many interface{ Unwrap() []error }
	if !errors.As(err, &many) {
		return nil
	}
	for _, e := range many.Unwrap() {
		var held *pgmutex.HeldError
		var state interface{ SQLState() string }
		switch {
		case errors.As(e, &state):
			return e
		case errors.As(e, &held):
			if inner := storeGone(e); inner != nil {
				return inner
			}
		case errors.Is(e, context.Canceled), errors.Is(e, context.DeadlineExceeded):
		default:
			return e
		}
	}
	return nil
}

// describe says who holds a lock.
func describe(held *pgmutex.HeldError) string {
	text := fmt.Sprintf("%q is held", held.Name)
	if held.Holder != "" {
		text += fmt.Sprintf(" by %q", held.Holder)
	}
	text += where(held.Details)
	if !held.Since.IsZero() {
		text += " since " + moment(held.Since)
	}
	if held.Holder != "" && held.Details[backend] == "" {
		text += fmt.Sprintf(", stale in %s without a heartbeat", span(held.Remaining))
	}
	return text
}

// backend is the detail by which the advisory engine shows the session that holds
// a lock; such a holder shows no heartbeats.
const backend = "backend_pid"

// where says where a holder runs, as far as it tells.
func where(details map[string]string) string {
	text := ""
	if pid := details[backend]; pid != "" {
		if address := details["address"]; address != "" {
			text += " from " + word(address)
		}
		return text + " (server process " + word(pid) + ")"
	}
	if host := details["host"]; host != "" {
		text += " on " + word(host)
	}
	if pid := details["pid"]; pid != "" {
		text += " (pid " + word(pid) + ")"
	}
	return text
}
