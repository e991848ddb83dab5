package goose

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"

	"github.com/pgmutex/pgmutex"
)

// A Locker is a lock.Locker of goose's, for goose.WithLocker. A provider takes
// the lock before it reads what is left to do, so whoever waited applies nothing
// twice. While it waits no query is open, which leaves CREATE INDEX CONCURRENTLY
// free to proceed.
//
// goose has no way to be told of a loss: its migrations run under the context
// that Up was given. When the hold is lost, because the store could not be
// reached until trust ran out, say, the migration goes on beside a possible
// successor, and Up returns the *pgmutex.LostError at the end. To have a loss
// stop the migration, give the provider no locker and call its Up in the
// function of Client.Do, with that function's context, which ends with the hold.
//
// The two do not nest: a Locker of the same name inside that function would wait
// for itself and is refused at once.
//
// A Locker serves one provider at a time; for others it queues.
type Locker struct {
	client *pgmutex.Client
	name   string

	// turn has room for the one who is between Lock and Unlock. Without it, an
	// Unlock after a loss could not tell its own hold from that of whoever took
	// the lock over through this same Locker.
	turn chan struct{}
	hold atomic.Pointer[pgmutex.Hold]
}

// NewLocker returns a locker that takes the lock name through client, which
// remains the caller's to close, after the migrations. How long to wait is what
// client was made with: see pgmutex.AcquireOptions and Client.With. A name that
// breaks the rules is refused by the first Lock.
func NewLocker(client *pgmutex.Client, name string) *Locker {
	return &Locker{client: client, name: name, turn: make(chan struct{}, 1)}
}

// Lock takes the lock as Client.Acquire does and keeps it, renewed, until
// Unlock; that ctx ends meanwhile does not matter to it. On failure it returns
// what Acquire returned, and nothing is held. Another Lock through the same
// Locker first waits for the Unlock of this one, as long as its ctx allows.
//
// The database is goose's and is not used: the lock is where client keeps it.
func (l *Locker) Lock(ctx context.Context, _ *sql.DB) error {
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("pgmutex: goose: waiting for %q in this process: %w", l.name, context.Cause(ctx))
	}
	hold, err := l.client.Acquire(ctx, l.name)
	if err != nil {
		<-l.turn
		return err
	}
	l.hold.Store(hold)
	return nil
}

// Unlock gives the lock back as Hold.Release does, also with a ctx that has
// ended. It returns a *pgmutex.LostError if the lock was lost meanwhile, and
// another error if the release is not confirmed yet and goes on in the
// background; the lock is not ours any more either way. Without a Lock before
// it, the error matches pgmutex.ErrNotHeld.
func (l *Locker) Unlock(ctx context.Context, _ *sql.DB) error {
	hold := l.hold.Swap(nil)
	if hold == nil {
		return fmt.Errorf("pgmutex: goose: unlock of %q: %w", l.name, pgmutex.ErrNotHeld)
	}
	defer func() { <-l.turn }()
	return hold.Release(ctx)
}
