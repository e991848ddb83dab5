package advisory

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmutex/pgmutex"
)

const (
	connPoll    = 100 * time.Millisecond // between two tries, jittered down to a half
	connTry     = 15 * time.Second       // for one statement
	connRelease = 5 * time.Second
)

// AcquireConn takes the lock of a name on the caller's own session, and waits for
// it until ctx ends. Work and lock then live and die together: what is done on
// this connection is over when the lock is. It excludes the clients of this
// engine and is excluded by them. Nothing renews it and nothing tells of its end
// but the connection's own errors.
//
// It waits by short tries and never has a statement outstanding in between, so a
// holder may run CREATE INDEX CONCURRENTLY meanwhile. A lock that this session
// holds already is answered at once with an error that matches pgmutex.ErrHeld.
// When ctx ends, the error matches the context's, and pgmutex.ErrHeld where somebody
// was seen to hold it; nothing is held, and the connection is usable.
//
// A connection that does not show that it is direct is refused with an error that
// matches errors.ErrUnsupported, see [NameOptions].
func AcquireConn(ctx context.Context, conn *sql.Conn, name string, opts *NameOptions) (pgmutex.Info, error) {
	l, err := opts.lock(name)
	if err != nil {
		return pgmutex.Info{}, err
	}
	if err := ctx.Err(); err != nil {
		return pgmutex.Info{}, l.failed(context.Cause(ctx))
	}
	if opts == nil || !opts.DirectSession {
		if err := checkDirect(ctx, conn); err != nil {
			return pgmutex.Info{}, l.failed(err)
		}
	}
	for {
		at, err := l.tryConn(ctx, conn)
		switch {
		case err != nil:
			return pgmutex.Info{}, l.failed(err)
		case at != nil && *at == -1:
			return pgmutex.Info{}, l.held("held by this session itself")
		case at != nil && ctx.Err() == nil:
			return l.info(*at), nil
		case at != nil:
			// It came as the caller left.
			err := ReleaseConn(ctx, conn, name, opts)
			return pgmutex.Info{}, l.failed(errors.Join(context.Cause(ctx), err))
		}
		timer := time.NewTimer(connPoll/2 + rand.N(connPoll/2))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return pgmutex.Info{}, &pgmutex.AcquireError{
				Name: l.name, Reason: "held, and the context has ended",
				Err: errors.Join(&pgmutex.HeldError{Name: l.name}, context.Cause(ctx)),
			}
		}
	}
}

// tryConn asks once. The caller's context does not cancel the statement: its
// driver would close the connection.
func (l lock) tryConn(ctx context.Context, conn *sql.Conn) (at *int64, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), connTry)
	defer cancel()
	err = conn.QueryRowContext(ctx, inline(tryConn.of(l.shared).text, []any{l.id})).Scan(&at)
	return at, err
}

// ReleaseConn gives back a lock that AcquireConn took on this connection. It
// ignores the end of ctx and takes no longer than five seconds. An error that
// matches pgmutex.ErrNotHeld means that the session did not hold the lock: it has
// been lost, or was never taken. After any other error the connection has been
// thrown away, and the lock with it: a lock must not go back into a pool.
func ReleaseConn(ctx context.Context, conn *sql.Conn, name string, opts *NameOptions) error {
	l, err := opts.lock(name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), connRelease)
	defer cancel()
	var held bool
	err = conn.QueryRowContext(ctx, inline(undo.of(l.shared).text, []any{l.id})).Scan(&held)
	switch {
	case errors.Is(err, sql.ErrConnDone), errors.Is(err, driver.ErrBadConn):
		return fmt.Errorf("pgmutex: release %q: the connection is gone, and the lock with it: %w", name, pgmutex.ErrNotHeld)
	case err != nil:
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		return fmt.Errorf("pgmutex: release %q: %w", name, err)
	case !held:
		return fmt.Errorf("pgmutex: release %q: %w", name, pgmutex.ErrNotHeld)
	}
	return nil
}

// checkDirect refuses a connection with a pooler in between, and one that does not
// show it.
func checkDirect(ctx context.Context, conn *sql.Conn) error {
	process := int64(0)
	if err := conn.Raw(func(driverConn any) error {
		if d, ok := driverConn.(interface{ Conn() *pgx.Conn }); ok {
			process = int64(d.Conn().PgConn().PID())
		}
		return nil
	}); err != nil {
		return err
	}
	if process == 0 {
		return fmt.Errorf("the driver does not show whether a connection pooler stands in between; "+
			"set advisory.NameOptions.DirectSession if there is none, or one in session mode: %w", errors.ErrUnsupported)
	}
	// As in tryConn: its end would be that of the connection.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), connTry)
	defer cancel()
	var backend int64
	if err := conn.QueryRowContext(ctx, ping.text).Scan(&backend); err != nil {
		return err
	}
	if backend != process {
		return fmt.Errorf("a connection pooler stands in between, so the lock would belong to a session that others use as well; "+
			"connect to the server itself, or set advisory.NameOptions.DirectSession if the pooler is in session mode: %w", errors.ErrUnsupported)
	}
	return nil
}
