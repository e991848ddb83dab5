package pgdb

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// The connection outlives the last listener by this: who waits often, waits
	// soon again.
	lingerFor = 5 * time.Second

	// A silent connection is asked for a sign of life this often, and given this
	// long for it. Only that finds out that the other side is gone: a connection
	// that is only read from never fails.
	hearEvery  = 30 * time.Second
	hearAnswer = 5 * time.Second

	hearConnect = 15 * time.Second

	firstPause = 100 * time.Millisecond
	lastPause  = 10 * time.Second
	deafPause  = time.Minute // where a pooler was found
)

// ear is a backend that can make a connection for LISTEN.
type ear interface {
	dial(ctx context.Context, db *DB, heard pgconn.NotificationHandler) (*ownConn, error)
}

// serve is the goroutine: it connects, listens, and starts again after a
// failure, until nobody is interested any more.
func (e *ears) serve() {
	pause := firstPause
	for !e.finish() {
		heardOnce, err := e.session()
		e.deaf()
		switch {
		case errors.Is(err, ErrNoListen):
			for _, l := range e.wanted() {
				l.call("", true)
			}
			// Nothing will change while this pooler is there.
			pause = deafPause
		case err == nil:
			continue
		case heardOnce:
			pause = firstPause
		}
		e.db.log.Debug("pgmutex: notifications are interrupted", "error", err)
		e.sleep(pause/2 + rand.N(pause))
		pause = min(2*pause, max(pause, lastPause))
	}
}

// sleep pauses before the next attempt to connect, or until there is no reason
// for one.
func (e *ears) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for len(e.wanted()) > 0 {
		select {
		case <-timer.C:
			return
		case <-e.db.open.Done():
			return
		case <-e.changed:
		}
	}
}

// deaf marks all listeners as not served.
func (e *ears) deaf() {
	for _, l := range e.wanted() {
		l.live.Store(false)
	}
}

// session is one connection from beginning to end. It returns nil when nobody
// has been interested for a while, and whether the connection ever worked.
func (e *ears) session() (worked bool, err error) {
	ctx := e.db.open // unlike a statement, listening is not worth waiting for
	c, err := e.connect(ctx)
	if err != nil {
		return false, err
	}
	defer c.close()
	if !c.known.Direct {
		return false, ErrNoListen
	}
	channels := map[string]bool{} // those that LISTEN is in effect for
	for {
		if err := e.adjust(ctx, c, channels); err != nil {
			return worked, err
		}
		worked = true
		if len(channels) == 0 {
			if e.lingered() {
				return worked, nil
			}
			continue
		}
		if err := e.wait(ctx, c); err != nil {
			return worked, err
		}
	}
}

func (e *ears) connect(ctx context.Context) (*ownConn, error) {
	ctx, cancel := context.WithTimeout(ctx, hearConnect)
	defer cancel()
	c, err := e.db.back.(ear).dial(ctx, e.db, func(_ *pgconn.PgConn, n *pgconn.Notification) {
		e.heard(n.Channel, n.Payload)
	})
	if err != nil {
		return nil, err
	}
	if _, borrows := e.db.back.(*lent); !borrows { // whose sessions are not like this one
		e.db.learn(c.known)
	}
	return c, nil
}

// adjust makes the channels that are listened to those that are wanted, and
// tells new listeners that they are served now. LISTEN is in effect once its
// reply is here, so what happens after that call of wake is heard, and what
// happened before it is what the call is for.
func (e *ears) adjust(ctx context.Context, c *ownConn, channels map[string]bool) error {
	select {
	case <-e.changed:
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, hearAnswer)
	defer cancel()
	listeners := e.wanted()
	wanted := map[string]bool{}
	for _, l := range listeners {
		wanted[l.channel] = true
		if channels[l.channel] {
			continue
		}
		if err := command(ctx, c, "LISTEN "+pgx.Identifier{l.channel}.Sanitize()); err != nil {
			return err
		}
		channels[l.channel] = true
	}
	for channel := range channels {
		if wanted[channel] {
			continue
		}
		if err := command(ctx, c, "UNLISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
			return err
		}
		delete(channels, channel)
	}
	for _, l := range listeners {
		if !l.live.Swap(true) {
			l.call("", true)
		}
	}
	return nil
}

// lingered waits for new listeners and reports that none came.
func (e *ears) lingered() bool {
	timer := time.NewTimer(e.db.linger)
	defer timer.Stop()
	for len(e.wanted()) == 0 {
		select {
		case <-e.changed:
		case <-timer.C:
			return true
		case <-e.db.open.Done():
			return true
		}
	}
	return false
}

// wait reads notifications until the listeners change, and returns an error when
// the connection is gone.
func (e *ears) wait(ctx context.Context, c *ownConn) error {
	for {
		waiting, cancel := context.WithTimeout(ctx, hearEvery+rand.N(hearEvery/10))
		if !e.interruptBy(cancel) {
			cancel()
			return nil
		}
		err := c.pg.PgConn().WaitForNotification(waiting)
		quiet := waiting.Err() != nil
		e.interruptBy(nil)
		cancel()
		switch {
		case err == nil:
		case !quiet || c.pg.IsClosed() || ctx.Err() != nil:
			return wrap("waiting for notifications", err)
		case len(e.changed) > 0:
			return nil
		default:
			asking, cancel := context.WithTimeout(ctx, hearAnswer)
			err := c.ping(asking)
			cancel()
			if err != nil {
				return err
			}
		}
	}
}

// interruptBy sets what poke calls. It returns false if there is a change
// already, which would not call it any more.
func (e *ears) interruptBy(cancel func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.interrupt = cancel
	if cancel != nil && len(e.changed) > 0 {
		e.interrupt = nil
		return false
	}
	return true
}

func command(ctx context.Context, c *ownConn, sql string) error {
	if _, err := c.pg.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
		return wrap("listening", err)
	}
	return nil
}
