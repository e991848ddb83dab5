package pgdb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// A connection lent to the lane Work goes back after this, so that somebody who
// takes a lock now and then does not keep two connections of the application's.
const loanAfter = time.Second

// lent is the backend that borrows connections from a *sql.DB.
type lent struct{ pool *sql.DB }

// lend accepts a *sql.DB. A limit of one connection is refused: the first hold
// would keep it, and the application would wait for ever.
func lend(pool *sql.DB, _ Options) (backend, error) {
	switch {
	case pool == nil:
		return nil, errors.New("the *sql.DB is nil")
	case pool.Stats().MaxOpenConnections == 1:
		return nil, errors.New("the *sql.DB is limited to one connection (SetMaxOpenConns), which a held lock would keep for itself: allow at least two")
	}
	return &lent{pool: pool}, nil
}

func (w *lent) address() string { return "the database of the *sql.DB" }

func (w *lent) kill() {}

func (w *lent) idle(which Lane, idle time.Duration) time.Duration {
	if which == Work {
		return min(idle, loanAfter)
	}
	return idle
}

// connect borrows a connection. The driver's is found by its method, not by its
// type: importing the package of the type would register drivers in every
// program that uses this one.
func (w *lent) connect(ctx context.Context, db *DB) (conn, error) {
	loan, err := w.pool.Conn(ctx)
	if err != nil {
		// The text is left out: it may quote the connection string.
		return nil, connectError(ctx, nil, trust{}, err)
	}
	c := &lentConn{own: &ownConn{db: db}, loan: loan}
	ready := false
	defer func() {
		if !ready {
			c.close()
		}
	}()
	err = loan.Raw(func(driverConn any) error {
		if d, ok := driverConn.(interface{ Conn() *pgx.Conn }); ok {
			c.own.pg = d.Conn()
		}
		return nil
	})
	if err != nil {
		return nil, connectError(ctx, nil, trust{}, err)
	}
	if c.own.pg == nil {
		return nil, notSent("", fmt.Errorf("a *sql.DB with a driver other than pgx: %w", errors.ErrUnsupported))
	}
	err = c.inside(ctx, func(ctx context.Context) error { return c.own.introduceLent(ctx) })
	if err != nil {
		return nil, connectError(ctx, nil, trust{}, err)
	}
	if db.opts.OnConnect != nil {
		err = c.inside(ctx, func(ctx context.Context) (err error) {
			c.own.session, err = db.opts.OnConnect(ctx, querier{c: c.own, mode: pgx.QueryExecModeExec})
			return err
		})
		if err != nil {
			return nil, notSent("", err)
		}
	}
	ready = true
	return c, nil
}

// introduceLent learns the facts and changes nothing: the session is not ours.
func (c *ownConn) introduceLent(ctx context.Context) error {
	direct, pooled := modes(c.pg.Config())
	f, backend, err := c.ask(ctx, pooled, -1, "")
	if err != nil {
		return err
	}
	f.Direct = backend == int32(c.pg.PgConn().PID())
	c.known, c.mode = f, direct
	if !f.Direct {
		c.mode = pooled
	}
	return nil
}

// lentConn is a borrowed connection. What it does it does inside of Raw, which
// keeps database/sql from the connection meanwhile.
type lentConn struct {
	own  *ownConn
	loan *sql.Conn
}

// inside calls do with a context that ends with the DB too, and has the
// connection thrown away if it is in doubt afterwards.
func (c *lentConn) inside(ctx context.Context, do func(context.Context) error) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.own.db.life, cancel)()
	called := false
	raw := c.loan.Raw(func(any) error {
		called = true
		if err = do(ctx); !c.own.usable() {
			return driver.ErrBadConn
		}
		return nil
	})
	if !called {
		c.own.bad = true
		return notSent("", raw)
	}
	return err
}

func (c *lentConn) run(ctx context.Context, st Statement, args []any, each func(Row) error) error {
	err := c.inside(ctx, func(ctx context.Context) error { return c.own.run(ctx, st, args, each) })
	return named(st.Name, err)
}

func (c *lentConn) tx(ctx context.Context, fn func(context.Context, Querier) error) error {
	return c.inside(ctx, func(ctx context.Context) error { return c.own.tx(ctx, fn) })
}

func (c *lentConn) ping(ctx context.Context) error {
	return c.inside(ctx, func(ctx context.Context) error { return c.own.ping(ctx) })
}

// stale cannot look at the socket; the question after a second has to do.
func (c *lentConn) stale() bool { return c.own.pg.IsClosed() }

func (c *lentConn) usable() bool  { return c.own.usable() }
func (c *lentConn) facts() *Facts { return c.own.known }

// close gives the connection back. One in doubt has been thrown away already.
func (c *lentConn) close() { _ = c.loan.Close() }
