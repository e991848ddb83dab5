package pgdb

import (
	"context"
	"database/sql"
	"database/sql/driver"

	"github.com/jackc/pgx/v5"
)

// lentConn is a borrowed connection of pgx. What it does it does inside of Raw,
// which keeps database/sql from the connection meanwhile.
type lentConn struct {
	own  *ownConn
	loan *sql.Conn
}

// introduce learns the facts and changes nothing: the session is not ours.
func (c *lentConn) introduce(ctx context.Context) error {
	err := c.inside(ctx, func(ctx context.Context) error {
		direct, pooled := modes(c.own.pg.Config())
		f, backend, err := c.own.ask(ctx, pooled, -1, "")
		if err != nil {
			return err
		}
		f.Direct = backend == int32(c.own.pg.PgConn().PID())
		c.own.known, c.own.mode = f, direct
		if !f.Direct {
			c.own.mode = pooled
		}
		return nil
	})
	if err != nil || c.own.db.opts.OnConnect == nil {
		return err
	}
	return c.inside(ctx, func(ctx context.Context) (err error) {
		c.own.session, err = c.own.db.opts.OnConnect(ctx, querier{c: c.own, mode: pgx.QueryExecModeExec})
		return err
	})
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

func (c *lentConn) look(ctx context.Context, fn func(context.Context, Querier) error) error {
	return c.inside(ctx, func(ctx context.Context) error { return c.own.look(ctx, fn) })
}

func (c *lentConn) script(ctx context.Context, what, text string) error {
	err := c.inside(ctx, func(ctx context.Context) error { return c.own.script(ctx, what, text) })
	return named(what, err)
}

func (c *lentConn) ping(ctx context.Context) error {
	return c.inside(ctx, func(ctx context.Context) error { return c.own.ping(ctx) })
}

func (c *lentConn) stale() bool   { return c.own.stale() }
func (c *lentConn) usable() bool  { return c.own.usable() }
func (c *lentConn) facts() *Facts { return c.own.known }

// close gives the connection back. One in doubt has been thrown away already.
func (c *lentConn) close() { _ = c.loan.Close() }
