package pgdb

import (
	"context"
	"time"
)

// A connection that has been idle for longer than this is asked for a sign of
// life before a statement is entrusted to it: a request that gets lost in a dead
// connection has an unknown outcome, a lost question has none.
const askAfter = time.Second

// lane is one connection and the queue before it.
//
// The turn is a token in a channel: the runtime serves receivers in the order
// in which they came, and they can give up when their context ends, which a
// mutex does not allow. Whoever has the turn owns all fields below it.
type lane struct {
	db    *DB
	which Lane
	turn  chan struct{}

	c       conn       // nil: none
	opening *opening   // of the next one; nil when there is none
	delayed *latecomer // of the last one; nil when there is none
	habit   Statement  // the last one that a connection had to prepare
	used    time.Time
	asked   time.Time // when the connection was last reserved
	timer   *time.Timer
	armed   bool
}

func newLane(db *DB, which Lane) *lane {
	l := &lane{db: db, which: which, turn: make(chan struct{}, 1)}
	l.timer = time.AfterFunc(time.Hour, l.expire)
	l.timer.Stop()
	l.turn <- struct{}{}
	return l
}

// with calls do with a connection that is there and, as far as can be told,
// alive.
func (l *lane) with(ctx context.Context, what string, do func(conn) error) error {
	if err := l.take(ctx); err != nil {
		return notSent(what, err)
	}
	if l.which == Work && l.c == nil && l.shares(ctx, what) {
		// The turn is kept, so that a renewal never waits for more than one
		// statement of this lane.
		defer l.give()
		return l.db.lanes[Keep].with(ctx, what, do)
	}
	// Until do has returned, every way out, a panic included, leaves the
	// connection in a state that nobody knows.
	sound := false
	defer func() {
		if !sound {
			l.drop()
		}
		l.give()
	}()
	if err := l.ready(ctx, what); err != nil {
		return err
	}
	err := do(l.c)
	sound = l.c == nil || l.c.usable()
	return err
}

// shares reports whether a statement of this lane, which has no connection, has
// to use that of Keep: the application has all others.
func (l *lane) shares(ctx context.Context, what string) bool {
	room, patience := l.db.back.room()
	if !room || patience == 0 {
		return !room
	}
	short, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return l.ready(short, what) != nil && short.Err() != nil && ctx.Err() == nil
}

// reserve makes sure of a connection without using it.
func (l *lane) reserve(ctx context.Context) error {
	const what = "reserve a connection"
	if err := l.take(ctx); err != nil {
		return notSent(what, err)
	}
	defer func() { l.turn <- struct{}{} }()
	l.asked = time.Now()
	if l.c == nil {
		if err := l.ready(ctx, what); err != nil {
			return err
		}
		l.used = l.asked
	}
	l.watch()
	return nil
}

// take waits for the turn.
func (l *lane) take(ctx context.Context) error {
	// A context that is over loses against a free turn, and so does a handle
	// that is closed; select alone would toss a coin.
	if ctx.Err() != nil {
		return contextError(ctx)
	}
	if l.db.isClosing() {
		return ErrClosed
	}
	select {
	case <-l.turn:
		if l.db.isClosing() {
			l.turn <- struct{}{}
			return ErrClosed
		}
		return nil
	case <-l.db.open.Done():
		return ErrClosed
	case <-ctx.Done():
		return contextError(ctx)
	}
}

// free takes the turn if nobody has it.
func (l *lane) free() bool {
	select {
	case <-l.turn:
	default:
		return false
	}
	if l.db.isClosing() {
		l.turn <- struct{}{}
		return false
	}
	return true
}

// ready makes sure of a living connection.
func (l *lane) ready(ctx context.Context, what string) error {
	l.collect()
	if l.c != nil && (l.c.stale() || time.Since(l.used) > askAfter) {
		if err := l.c.ping(ctx); err != nil {
			l.drop()
			if ctx.Err() != nil {
				return notSent(what, contextError(ctx))
			}
			l.db.log.Debug("pgmutex: a connection was lost", "lane", l.which, "error", err)
		}
	}
	if l.c != nil {
		return nil
	}
	if err := l.connect(ctx); err != nil {
		return named(what, err)
	}
	return nil
}

// give passes the turn on.
func (l *lane) give() {
	if l.c != nil && l.which == Work && l.db.back.wanted() {
		l.drop()
	}
	if l.c != nil {
		l.used = time.Now()
	}
	if l.c != nil || l.opening != nil || l.delayed != nil {
		l.watch()
	}
	l.turn <- struct{}{}
}

// watch sets the timer that finds out that nobody uses the connection, or the one
// that is being made, any more.
func (l *lane) watch() {
	if !l.armed {
		l.armed = true
		l.timer.Reset(l.patience())
	}
}

// patience is how long a connection that is not used is kept.
func (l *lane) patience() time.Duration {
	return l.db.back.idle(l.which, l.db.idle, time.Duration(l.db.reserved.Load()))
}

// drop closes the connection, if there is one.
func (l *lane) drop() {
	if l.c != nil {
		l.c.close()
		l.c = nil
	}
}

// expire runs when the timer fires, in a goroutine of its own. The timer is not
// moved by each use: it looks at the time of the last one and comes back.
func (l *lane) expire() {
	if !l.db.begin() {
		return
	}
	defer l.db.work.Done()
	select {
	case <-l.turn:
	case <-l.db.open.Done():
		return
	}
	defer func() { l.turn <- struct{}{} }()
	l.armed = false
	l.collect()
	switch {
	case l.c != nil:
	case l.opening != nil || l.delayed != nil:
		l.watch()
		return
	default:
		return
	}
	last := l.used
	if l.asked.After(last) {
		last = l.asked
	}
	if left := l.patience() - time.Since(last); left > 0 {
		l.armed = true
		l.timer.Reset(left)
		return
	}
	l.drop()
}

// shut takes the turn for good and closes the connection.
func (l *lane) shut() {
	<-l.turn
	l.timer.Stop()
	l.dismiss()
	l.abandon()
	l.drop()
}
