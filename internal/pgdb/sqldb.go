package pgdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// A connection lent to a lane goes back after this, unless [DB.Reserve] asked
	// for more: whoever takes a lock now and then keeps none of the application's
	// connections.
	loanAfter = time.Second

	// The lane Work waits for a second connection no longer than this; then it
	// shares the one of Keep.
	shareAfter = time.Second

	// A pool of this size lends one connection and no more. The other one is the
	// application's, always.
	smallPool = 2
)

var errOneConnection = errors.New("the *sql.DB is limited to one connection (SetMaxOpenConns), which a held lock would keep for itself: allow at least two")

// lent is the backend that borrows connections from a *sql.DB.
type lent struct {
	pool *sql.DB
	opts Options

	// What connections for LISTEN are made from: the configuration of a
	// connection that was lent. Nil where none was seen yet, or the driver is not
	// pgx.
	config  atomic.Pointer[pgx.ConnConfig]
	sockets *sockets

	asking chan struct{} // holds a token for each question that the pool has to answer
}

// lend accepts a *sql.DB. A limit of one connection is refused: the first hold
// would keep it, and the application would wait for ever.
func lend(pool *sql.DB, o Options) (backend, error) {
	switch {
	case pool == nil:
		return nil, errors.New("the *sql.DB is nil")
	case pool.Stats().MaxOpenConnections == 1:
		return nil, errOneConnection
	}
	return &lent{pool: pool, opts: o, sockets: newSockets(), asking: make(chan struct{}, int(lanes)+1)}, nil
}

func (w *lent) address() string { return "the database of the *sql.DB" }

func (w *lent) kill() { w.sockets.kill() }

func (w *lent) idle(which Lane, _, reserved time.Duration) time.Duration {
	if which == Keep {
		return max(loanAfter, reserved)
	}
	return loanAfter
}

// room reports whether there is a connection for the lane Work beside that of
// Keep that nobody is waiting for.
func (w *lent) room() (bool, time.Duration) {
	s := w.pool.Stats()
	free := s.MaxOpenConnections <= 0 || s.MaxOpenConnections > smallPool && s.InUse < s.MaxOpenConnections
	return free, shareAfter
}

// wanted reports whether the application may be waiting for the connection that
// the lane Work does not use at the moment.
func (w *lent) wanted() bool {
	s := w.pool.Stats()
	return s.MaxOpenConnections > 0 && s.InUse >= s.MaxOpenConnections
}

// borrow takes a connection from the pool. The driver's own is found by what it
// can do, not by its type: importing the package of the type would register
// drivers in every program that uses this one.
func (w *lent) borrow(ctx context.Context) (loan *sql.Conn, pg *pgx.Conn, err error) {
	if w.pool.Stats().MaxOpenConnections == 1 { // limited since it was passed in
		return nil, nil, notSent("", errOneConnection)
	}
	loan, err = w.ask(ctx)
	if err != nil {
		if ctx.Err() != nil && w.wanted() {
			return nil, nil, notSent("", fmt.Errorf("all connections of the *sql.DB are in use: %w", contextError(ctx)))
		}
		// The text is left out: it may quote the connection string.
		return nil, nil, connectError(ctx, nil, trust{}, err)
	}
	err = loan.Raw(func(driverConn any) error {
		if d, ok := driverConn.(interface{ Conn() *pgx.Conn }); ok {
			pg = d.Conn()
		}
		return nil
	})
	if err != nil {
		_ = loan.Close()
		return nil, nil, connectError(ctx, nil, trust{}, err)
	}
	if pg != nil {
		w.config.Store(pg.Config())
	}
	return loan, pg, nil
}

// ask is pool.Conn, but ends with ctx. A driver that was registered by name may
// never hear of ctx and wait for a server that does not answer for as long as TCP
// does. What it makes then goes to the application; there are no more than a few
// such questions at a time, and Close does not wait for them.
func (w *lent) ask(ctx context.Context) (*sql.Conn, error) {
	select {
	case w.asking <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	type answer struct {
		loan *sql.Conn
		err  error
	}
	answers := make(chan answer)
	go func() {
		defer func() { <-w.asking }()
		loan, err := w.pool.Conn(ctx)
		select {
		case answers <- answer{loan, err}:
		case <-ctx.Done():
			if err == nil {
				_ = loan.Close()
			}
		}
	}()
	select {
	case a := <-answers:
		return a.loan, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (w *lent) connect(ctx context.Context, db *DB) (conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(db.life, cancel)()
	loan, pg, err := w.borrow(ctx)
	if err != nil {
		return nil, err
	}
	var c interface {
		conn
		introduce(ctx context.Context) error
	}
	if pg != nil {
		c = &lentConn{own: &ownConn{db: db, pg: pg}, loan: loan}
	} else {
		c = &foreignConn{db: db, loan: loan}
	}
	ready := false
	defer func() {
		if !ready {
			c.close()
		}
	}()
	if err := c.introduce(ctx); err != nil {
		return nil, connectError(ctx, nil, trust{}, err)
	}
	ready = true
	return c, nil
}

// dial makes a connection of our own for LISTEN, as the driver made the one that
// was lent. To keep a lent one for as long as somebody waits would take half of
// a pool of two, and its notifications would go to the application's handler.
func (w *lent) dial(ctx context.Context, db *DB, heard pgconn.NotificationHandler) (*ownConn, error) {
	config := w.config.Load()
	if config == nil {
		loan, pg, err := w.borrow(ctx)
		if err != nil {
			return nil, err
		}
		_ = loan.Close()
		if pg == nil {
			return nil, ErrNoListen
		}
		config = w.config.Load()
	}
	r := &recipe{config: &pgxpool.Config{ConnConfig: config.Copy()}}
	own := r.owned(w.opts)
	own.sockets = w.sockets
	c, err := own.dial(ctx, db, heard)
	if err != nil {
		// The application may have new credentials by now.
		w.config.CompareAndSwap(config, nil)
	}
	return c, err
}
