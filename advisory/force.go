package advisory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/pgdb"
)

var force = read("force")

// forcePause is between two looks whether a session that was told to end has.
const forcePause = 5 * time.Millisecond

// ForceRelease implements [engine.Forcer]. Only the session that took a lock can
// give it back. It is asked to, and the error matches errors.ErrUnsupported where
// it cannot be: a session of another program, or of a client that polls only or
// uses a *sql.DB. With Now it is ended, and with it everything else that it
// holds: all locks of that client, and whatever another program does on it. This
// returns when the request was heard, or the lock is no longer that session's.
func (e *store) ForceRelease(ctx context.Context, seen engine.Status, how engine.Force) error {
	id := engine.NameID(seen.Name)
	if s := e.current(); s != nil && s.standing(engine.Term{ID: seen.Term}) {
		return fmt.Errorf("%q is held by this client itself: release it: %w", seen.Name, errors.ErrUnsupported)
	}
	pid, started, ok := sessionOf(seen.Term)
	if !ok {
		// A term of this client's, which is over.
		return e.missed(ctx, seen.Name, id)
	}
	if !how.Now {
		return e.ask(ctx, seen, id, pid, started, how.By)
	}
	found := false
	st := pgdb.Statement{Name: force.name, SQL: force.text}
	err := e.side.Run(ctx, pgdb.Work, st, []any{id, pid, started}, func(r pgdb.Row) error {
		return r.Scan(&found)
	})
	if err != nil {
		return err
	}
	if !found {
		return e.missed(ctx, seen.Name, id)
	}
	return e.until(ctx, seen, id, "the session has been told to end; whether it has is not known",
		func(keyHolder) bool { return true })
}

// missed says why the hold that was shown is not there any more.
func (e *store) missed(ctx context.Context, name string, id int64) error {
	all, err := e.look(ctx, listOne, id)
	switch {
	case err != nil:
		return err
	case len(all) == 0:
		return fmt.Errorf("%q: %w", name, engine.ErrGone)
	}
	return fmt.Errorf("%q is now held by %s: %w", name, all[0].termID(), engine.ErrChanged)
}
