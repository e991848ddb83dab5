package pgdb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"time"
)

// A driver that is asked to cancel a statement gets this long to tell what
// became of it. Then its connection is closed under its hands: a driver that
// reads without a time limit would wait for a server that is gone for as long as
// TCP does, and the application would miss the connection.
const cancelGrace = 500 * time.Millisecond

// foreignConn is a borrowed connection of another driver than pgx, used through
// the interfaces of database/sql/driver, below database/sql: that would put the
// end of the context in the place of what the server says.
//
// Statements travel without parameters (see inline), which is one round trip and
// leaves nothing behind with any driver; with them lib/pq prepares an unnamed
// statement first, which a pooler may do on another server.
type foreignConn struct {
	db    *DB
	loan  *sql.Conn
	known *Facts
	sess  any
	bad   bool
}

// needed is what a driver has to have: a text without arguments must be able to
// hold several statements.
type needed interface {
	driver.QueryerContext
	driver.ExecerContext
}

// introduce learns the facts and changes nothing: the session is not ours. That
// the connection is direct cannot be seen.
func (c *foreignConn) introduce(ctx context.Context) error {
	err := c.ask(ctx)
	if SQLState(err) == "25P02" { // given back with a failed transaction in it
		if err = c.exec(ctx, "ROLLBACK", nil); err == nil {
			err = c.ask(ctx)
		}
	}
	if err != nil || c.db.opts.OnConnect == nil {
		return err
	}
	return c.look(ctx, func(ctx context.Context, q Querier) (err error) {
		c.sess, err = c.db.opts.OnConnect(ctx, q)
		return err
	})
}

func (c *foreignConn) ask(ctx context.Context) error {
	text, err := inline(introduction, []any{-1, ""})
	if err != nil {
		return err
	}
	f := &Facts{}
	alone := true
	err = c.query(ctx, "", text, func(row Row) error {
		return row.Scan(nil, &f.Version, &f.Standby, &f.Role, &f.Database, &f.ReadOnly, &f.SynchronousCommit, &f.Isolation, &alone, nil)
	})
	if err == nil && !alone {
		// Given back with a transaction in it, which would swallow ours.
		err = c.exec(ctx, "ROLLBACK", nil)
	}
	c.known = f
	return err
}

// inside calls do with the driver's connection and a context that ends with the
// DB too, judges its error, and has the connection thrown away if it is in doubt.
func (c *foreignConn) inside(ctx context.Context, what string, do func(context.Context, needed) error) (err error) {
	if ctx.Err() != nil {
		return notSent(what, contextError(ctx))
	}
	live, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.db.life, cancel)()
	called := false
	raw := c.loan.Raw(func(driverConn any) error {
		called = true
		d, ok := driverConn.(needed)
		if !ok {
			err = notSent(what, fmt.Errorf("the driver of the *sql.DB cannot run a text of several statements: %w", errors.ErrUnsupported))
			return nil
		}
		done := cutOff(live, driverConn)
		err = do(live, d)
		done()
		v, ok := driverConn.(driver.Validator)
		broken := ok && !v.IsValid()
		err = c.judge(ctx, what, err, broken)
		c.bad = c.bad || broken || live.Err() != nil || errors.Is(err, driver.ErrBadConn)
		if c.bad {
			return driver.ErrBadConn
		}
		return nil
	})
	if !called {
		c.bad = true
		return notSent(what, raw)
	}
	return err
}

// cutOff closes the driver's connection some time after ctx has ended, unless
// the function that it returns is called first.
func cutOff(ctx context.Context, driverConn any) (done func()) {
	finished, left := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(left)
		grace := time.NewTimer(cancelGrace)
		defer grace.Stop()
		select {
		case <-finished:
		case <-grace.C:
			if d, ok := driverConn.(io.Closer); ok {
				_ = d.Close()
			}
		}
	})
	return func() {
		close(finished)
		if !stop() {
			<-left
		}
	}
}

// judge makes an Error of what a driver returned. A refusal by the server is one
// only if the session survived it: the severity, which tells the two apart, has
// no interface, and lib/pq's text of it may be translated. After the end of the
// context the driver may have given the session up for that reason; then the
// server's answer to the cancel request is believed, which has a code of its own.
func (c *foreignConn) judge(ctx context.Context, what string, err error, broken bool) error {
	if err == nil {
		return nil
	}
	e := *asError(err)
	if e.what == "" {
		e.what = what
	}
	if e.Code != "" && e.Class != NotSent {
		ended := ctx.Err() != nil && e.Class == Canceled
		if fatal, ok := err.(interface{ Fatal() bool }); ok && fatal.Fatal() || broken && !ended {
			e.Class = Unknown
		}
		// A read-only server may have a primary beside it that the next
		// connection finds.
		c.bad = c.bad || e.Class == ReadOnly || e.Class == Unknown
	}
	if ended := ctx.Err(); ended != nil && !errors.Is(e.err, ended) {
		e.err = errors.Join(e.err, contextError(ctx))
	}
	return &e
}

func (c *foreignConn) run(ctx context.Context, st Statement, args []any, each func(Row) error) error {
	text, err := inline(st.SQL, args)
	if err != nil {
		return notSent(st.Name, err)
	}
	return c.query(ctx, st.Name, text, each)
}

func (c *foreignConn) query(ctx context.Context, what, text string, each func(Row) error) error {
	var stop error
	err := c.inside(ctx, what, func(ctx context.Context, d needed) error {
		rows, err := d.QueryContext(ctx, text, nil)
		if err != nil {
			return err
		}
		stop, err = c.drain(rows, each)
		return err
	})
	if err == nil && stop != nil {
		return &Error{Class: Unknown, what: what, err: stop}
	}
	return err
}

// drain calls each for all rows and reads the result to its end in any case:
// only then is the statement known to have been executed.
func (c *foreignConn) drain(rows driver.Rows, each func(Row) error) (stop, err error) {
	defer func() { err = errors.Join(err, rows.Close()) }()
	r := foreignRow{values: make([]driver.Value, len(rows.Columns())), session: c.sess}
	for {
		switch err := rows.Next(r.values); {
		case err == io.EOF: //nolint:errorlint // the interface promises this very value
			return stop, nil
		case err != nil:
			return stop, err
		case stop == nil && each != nil:
			stop = each(r)
		}
	}
}

func (c *foreignConn) exec(ctx context.Context, text string, rows *int64) error {
	return c.inside(ctx, "", func(ctx context.Context, d needed) error {
		result, err := d.ExecContext(ctx, text, nil)
		if err == nil && rows != nil {
			*rows, _ = result.RowsAffected() // which not every statement has
		}
		return err
	})
}

func (c *foreignConn) look(ctx context.Context, fn func(context.Context, Querier) error) error {
	return fn(ctx, foreignQuerier{c})
}

func (c *foreignConn) script(ctx context.Context, what, text string) error {
	return named(what, c.exec(ctx, text, nil))
}

func (c *foreignConn) ping(ctx context.Context) error { return c.query(ctx, "ping", "SELECT 1", nil) }

func (c *foreignConn) stale() bool   { return c.bad }
func (c *foreignConn) usable() bool  { return !c.bad }
func (c *foreignConn) facts() *Facts { return c.known }

// close gives the connection back. One in doubt has been thrown away already.
func (c *foreignConn) close() { _ = c.loan.Close() }

type foreignQuerier struct{ c *foreignConn }

func (q foreignQuerier) Exec(ctx context.Context, text string, args ...any) (rows int64, err error) {
	if text, err = inline(text, args); err != nil {
		return 0, notSent("", err)
	}
	err = q.c.exec(ctx, text, &rows)
	return rows, err
}

func (q foreignQuerier) Query(ctx context.Context, text string, args []any, each func(Row) error) error {
	text, err := inline(text, args)
	if err != nil {
		return notSent("", err)
	}
	return q.c.query(ctx, "", text, each)
}

// foreignRow is a row as a driver gives it.
type foreignRow struct {
	values  []driver.Value
	session any
}

func (r foreignRow) Session() any { return r.session }

// Scan knows the types that engines use, and pointers to them for NULL.
func (r foreignRow) Scan(dest ...any) error {
	if len(dest) != len(r.values) {
		return fmt.Errorf("scan: %d columns into %d variables", len(r.values), len(dest))
	}
	for i, d := range dest {
		if err := assign(d, r.values[i]); err != nil {
			return fmt.Errorf("scan column %d: %w", i+1, err)
		}
	}
	return nil
}

func assign(dest any, v driver.Value) error {
	switch d := dest.(type) {
	case nil:
		return nil
	case *string:
		return plain(d, v)
	case **string:
		return nullable(d, v)
	case *int:
		return plain(d, v)
	case *int32:
		return plain(d, v)
	case *int64:
		return plain(d, v)
	case **int64:
		return nullable(d, v)
	case *float64:
		return plain(d, v)
	case **float64:
		return nullable(d, v)
	case *bool:
		return plain(d, v)
	case **bool:
		return nullable(d, v)
	}
	return fmt.Errorf("a %T is not supported with this driver", dest)
}

func plain[T any](dest *T, v driver.Value) error {
	var n sql.Null[T] // the way to the conversions of database/sql
	if err := n.Scan(v); err != nil {
		return err
	}
	if !n.Valid {
		return fmt.Errorf("NULL into %T", dest)
	}
	*dest = n.V
	return nil
}

func nullable[T any](dest **T, v driver.Value) error {
	*dest = nil
	if v == nil {
		return nil
	}
	*dest = new(T)
	return plain(*dest, v)
}
