package pgdb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// ErrClosed is matched by errors of calls on a DB that is closed or closing.
// Nothing was sent.
var ErrClosed = errors.New("the database handle is closed")

// How long a connection that nobody uses is kept.
const idleAfter = 30 * time.Second

// Facts is what a connection told about itself and its server when it was made.
type Facts struct {
	Version  int    // server_version_num: 150018 is 15.18
	Role     string // current_user
	Database string
	Standby  bool // the server is in recovery: it is read-only

	// ReadOnly is default_transaction_read_only of the session.
	ReadOnly bool

	// Direct is false where a pooler stands in between, or may: the backend that
	// answered is not the one that the connection was given the key of.
	Direct bool

	// Settings is set where the session has the settings of [Settings], so that
	// [Statement.Direct] is used.
	Settings bool

	// What the role has for itself, before Settings changed it.
	SynchronousCommit string
	Isolation         string
}

// conn is one connection as a lane uses it, by one goroutine at a time.
type conn interface {
	// run executes one statement in a transaction of its own.
	run(ctx context.Context, st Statement, args []any, each func(Row) error) error

	// look runs fn, whose statements are transactions of their own.
	look(ctx context.Context, fn func(context.Context, Querier) error) error

	// script executes several statements as one transaction.
	script(ctx context.Context, what, text string) error

	// ping makes one round trip that has no effect.
	ping(ctx context.Context) error

	// stale reports whether the connection is seen to be dead, or has unread
	// input that may say so, without any I/O that waits.
	stale() bool

	// usable is false once an error left the connection in doubt.
	usable() bool

	facts() *Facts
	close()
}

// A backend is where connections come from: owned or lent.
type backend interface {
	address() string

	// idle is how long a lane keeps a connection that it does not use, given
	// how long it keeps one of its own and what Reserve asked for.
	idle(which Lane, idle, reserved time.Duration) time.Duration

	// room reports whether the lane Work may have a connection of its own now,
	// and how long it may wait for it, 0 for as long as its caller does.
	// Otherwise it shares that of Keep.
	room() (bool, time.Duration)

	// wanted reports whether somebody else may be waiting for a connection that
	// the lane Work has and does not use.
	wanted() bool

	// kill ends all connections at once, whoever is using them.
	kill()
}

// DB is the access of one engine to its database: a connection for each lane
// and one more while somebody listens. Connections are made when they are
// needed, made again after a failure, and closed when nobody has used them for
// half a minute. Those that a *sql.DB lends go back after a second, see
// [DB.Reserve]. It is safe for concurrent use.
type DB struct {
	opts  Options
	log   *slog.Logger
	back  backend
	lanes [lanes]*lane
	ears  *ears
	last  atomic.Pointer[Facts] // of the newest connection, nil before the first

	idle, linger time.Duration // idleAfter and lingerFor, but for tests
	reserved     atomic.Int64  // the longest time that Reserve was asked for

	// Open ends when Close is called, life when Close runs out of patience.
	open, life  context.Context
	refuse, end context.CancelFunc

	mu     sync.Mutex
	work   sync.WaitGroup
	closed chan struct{} // closed when Close is done
}

func newDB(back backend, o Options) *DB {
	db := &DB{
		opts:   o,
		log:    o.Logger,
		back:   back,
		idle:   idleAfter,
		linger: lingerFor,
		closed: make(chan struct{}),
	}
	db.open, db.refuse = context.WithCancel(context.Background())
	db.life, db.end = context.WithCancel(context.Background())
	for which := range db.lanes {
		db.lanes[which] = newLane(db, Lane(which))
	}
	db.ears = newEars(db)
	return db
}

// Run executes one statement as a transaction of its own, in one round trip
// (two when the text is new to the connection), and calls each for every row. It
// waits for its turn on the lane, first come, first served, and connects if it
// has to; both no longer than ctx lasts. A connection of our own that is not made
// by then goes on being made, and is there for the next call.
//
// Nil means that the statement was executed and that its commit is as durable as
// the session asked for. After an error, what each has collected is worth
// nothing; [Classify] tells whether the statement may have had an effect all the
// same. An error of each itself is returned with class Unknown, after the
// statement has run to its end. When ctx ends, Run returns soon, with an error
// that matches the context's.
//
// A connection whose state an error leaves in doubt, or whose server turned out
// to be read-only, is closed; the next call makes a new one. A statement is
// repeated where the server refused it for a prepared statement that had gone out
// of date, before it did anything, and on the lane Keep where the connection broke.
//
// Each must not call the DB again: lanes may share a connection.
func (db *DB) Run(ctx context.Context, which Lane, st Statement, args []any, each func(row Row) error) error {
	if ctx.Err() == nil {
		if r := db.Begin(which, st, args); r != nil {
			err := r.Finish(ctx, each)
			if which == Work || !r.broken || ctx.Err() != nil {
				return err
			}
		}
	}
	l := db.lanes[which]
	return l.with(ctx, st.Name, func(c conn) error {
		l.habit = st
		if c == l.c { // and not that of another lane
			if r := l.send(st, args); r != nil {
				return r.settle(ctx, each)
			}
		}
		return c.run(ctx, st, args, each)
	})
}

// Look runs fn on one connection, while others wait for the lane Work: it is
// meant for a few questions in a row. Each statement of fn is a transaction of
// its own, so that it works through a pooler that gives each to another server.
// The error of fn is returned as it is. A panic of fn passes through and closes
// the connection.
func (db *DB) Look(ctx context.Context, fn func(ctx context.Context, q Querier) error) error {
	return db.lanes[Work].with(ctx, "", func(c conn) error { return c.look(ctx, fn) })
}

// Script executes statements as one transaction, READ COMMITTED, on the lane
// Work: it is meant for setting up a schema. They travel in one message, which
// no pooler takes apart, have no parameters, and must not begin or end a
// transaction themselves. An error is as for Run; unless its class is Unknown,
// nothing was executed.
func (db *DB) Script(ctx context.Context, name string, statements ...string) error {
	text := "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;\n" + strings.Join(statements, ";\n")
	return db.lanes[Work].with(ctx, name, func(c conn) error { return c.script(ctx, name, text) })
}

// Reserve makes sure that renewals have a connection and keep it: whoever is
// about to take a lock that is renewed within d calls it first. Where
// connections are the application's, which may use up all that there are at any
// time, it borrows the one of the lane Keep now, waiting for it no longer than
// ctx lasts, and gives it back once neither a renewal nor a Reserve has come for
// the longest d that was ever asked for. Connections of our own need no more
// than a note. An error has class NotSent.
//
// A borrowed connection that breaks is replaced by the next renewal, which waits
// for its turn among the application's own calls then.
func (db *DB) Reserve(ctx context.Context, d time.Duration) error {
	for {
		longest := db.reserved.Load()
		if int64(d) <= longest || db.reserved.CompareAndSwap(longest, int64(d)) {
			break
		}
	}
	if _, ok := db.back.(*lent); !ok {
		return nil
	}
	return db.lanes[Keep].reserve(ctx)
}

// Check makes sure that a statement could be run now: it makes one round trip on
// the lane Work, over a new connection if there is none. It refuses nothing: a
// standby and a pooler are fine, and Facts says so afterwards.
func (db *DB) Check(ctx context.Context) error {
	return db.lanes[Work].with(ctx, "check", func(c conn) error { return c.ping(ctx) })
}

// Facts returns what the newest connection told, and the zero value before there
// was one.
func (db *DB) Facts() Facts {
	if f := db.last.Load(); f != nil {
		return *f
	}
	return Facts{}
}

// Direct reports whether the newest connection reached its server without a
// pooler in between. It is false before the first one.
func (db *DB) Direct() bool { return db.Facts().Direct }

// SettingsApplied reports whether the newest connection has our session
// settings. Run judges it for the very connection that it uses.
func (db *DB) SettingsApplied() bool { return db.Facts().Settings }

// Version is the server's version as a number, 150018 for 15.18; 0 before the
// first connection.
func (db *DB) Version() int { return db.Facts().Version }

// Role is the role that statements run as, empty before the first connection.
func (db *DB) Role() string { return db.Facts().Role }

// Address says where the database is, as host:port/database. It is safe to
// print, and vague where a part may not be what its name says.
func (db *DB) Address() string { return db.back.address() }

// Close closes all connections and returns when no goroutine is left. Calls that
// come later, and those that are still waiting for their turn, fail with
// ErrClosed. A statement under way is waited for until ctx ends and then cut off
// with its outcome unknown, and Close returns an error that says so. The second
// call returns nil, after the first one is done or ctx has ended.
func (db *DB) Close(ctx context.Context) error {
	db.mu.Lock()
	second := db.isClosing()
	db.refuse()
	db.mu.Unlock()
	if second {
		select {
		case <-db.closed:
		case <-ctx.Done():
		}
		return nil
	}
	defer close(db.closed)

	stop := context.AfterFunc(ctx, func() {
		db.end()
		db.back.kill()
	})
	for _, l := range db.lanes {
		l.shut()
	}
	db.ears.shut()
	db.work.Wait()
	inTime := stop()
	db.end()
	if !inTime {
		return fmt.Errorf("closing the database handle: statements were cut off: %w", contextError(ctx))
	}
	return nil
}

// isClosing reports whether Close has been called.
func (db *DB) isClosing() bool {
	return db.open.Err() != nil
}

// begin registers a goroutine that Close has to wait for; false means that it
// must not start any more.
func (db *DB) begin() bool {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.isClosing() {
		return false
	}
	db.work.Add(1)
	return true
}

// learn keeps the facts of a new connection.
func (db *DB) learn(f *Facts) {
	before := db.last.Swap(f)
	if !f.Direct && (before == nil || before.Direct) {
		db.log.Info("pgmutex: a connection pooler stands before the database, or may: no prepared statements, no LISTEN",
			"address", db.Address())
	}
}
