package goose

import (
	"context"
	"database/sql"
	"errors"

	"github.com/pgmutex/pgmutex/advisory"
)

// A SessionLocker is a lock.SessionLocker of goose's, for goose.WithSessionLocker:
// an advisory lock on the very session that migrates. Work and lock end together,
// so there is no loss for goose to be told of: what breaks the session ends the
// migration that runs on it. Migrations in Go that use the database instead of the
// connection are the exception, as goose runs them on other sessions.
//
// It needs no schema and no client. It excludes the clients of the advisory engine
// and is excluded by them, not those of the lease engine.
//
// It keeps nothing itself and may serve any number of providers.
type SessionLocker struct {
	name string
	opts advisory.NameOptions
}

// NewSessionLocker returns a locker for the lock name. A name that breaks the rules
// is refused by the first SessionLock.
func NewSessionLocker(name string) *SessionLocker { return &SessionLocker{name: name} }

// With returns the same locker with options: a namespace, or DirectSession for
// drivers other than pgx, which do not show whether a pooler stands in between.
// They replace those of an earlier With as a whole. Shared is refused by the first
// SessionLock: it would let two migrate at once.
func (l *SessionLocker) With(opts advisory.NameOptions) *SessionLocker {
	return &SessionLocker{name: l.name, opts: opts}
}

// SessionLock takes the lock as advisory.AcquireConn does, waiting for it as long
// as ctx allows and without an open query, which leaves CREATE INDEX CONCURRENTLY
// free to proceed. On failure nothing is held.
func (l *SessionLocker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	if l.opts.Shared {
		return errors.New("pgmutex: goose: NameOptions.Shared: a migration needs the lock for itself")
	}
	_, err := advisory.AcquireConn(ctx, conn, l.name, &l.opts)
	return err
}

// SessionUnlock gives the lock back as advisory.ReleaseConn does, also with a ctx
// that has ended. An error that matches pgmutex.ErrNotHeld means that the session
// did not hold it; whatever the error, it does not hold it now.
func (l *SessionLocker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	return advisory.ReleaseConn(ctx, conn, l.name, &l.opts)
}
