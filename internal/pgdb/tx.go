package pgdb

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// How long a rollback may take once the caller's context is over.
const rollbackTimeout = 5 * time.Second

var errRolledBack = errors.New("the transaction was rolled back, because a statement in it had failed")

func (c *ownConn) tx(ctx context.Context, fn func(context.Context, Querier) error) error {
	const what = "transaction"
	if ctx.Err() != nil {
		return notSent(what, contextError(ctx))
	}
	// Statements of a set-up run once: nothing is prepared for them.
	q := querier{c: c, mode: pgx.QueryExecModeExec}
	if c.mode == pgx.QueryExecModeSimpleProtocol {
		q.mode = c.mode
	}
	if _, err := q.Exec(ctx, "BEGIN ISOLATION LEVEL READ COMMITTED"); err != nil {
		// Nothing has been done yet, so whatever became of the BEGIN is no
		// matter.
		e := *asError(err)
		if e.Class == Unknown {
			e.Class = NotSent
		}
		c.bad = true
		return named(what, &e)
	}
	if err := fn(ctx, q); err != nil {
		c.rollback(ctx, q)
		return err
	}
	c.warned.Store(false)
	tag, err := c.pg.Exec(ctx, "COMMIT", q.mode)
	switch {
	case err != nil:
		return c.failed(ctx, what, err)
	case tag.String() != "COMMIT":
		return &Error{Class: Definite, what: what, err: errRolledBack}
	case c.warned.Load():
		return &Error{Class: Unknown, Code: "01000", what: what, err: errNotDurable}
	}
	return nil
}

// rollback gives the connection back a clean state, or up.
func (c *ownConn) rollback(ctx context.Context, q querier) {
	if c.pg.IsClosed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	if _, err := c.pg.Exec(ctx, "ROLLBACK", q.mode); err != nil {
		c.bad = true
	}
}

// querier runs statements one after the other on a connection.
type querier struct {
	c    *ownConn
	mode pgx.QueryExecMode
}

func (q querier) Exec(ctx context.Context, sql string, args ...any) (int64, error) {
	if len(args) == 0 {
		// The simple protocol is the one that takes several statements at once.
		results, err := q.c.pg.PgConn().Exec(ctx, sql).ReadAll()
		if err != nil {
			return 0, q.c.failed(ctx, "", err)
		}
		if len(results) == 0 {
			return 0, nil
		}
		return results[len(results)-1].CommandTag.RowsAffected(), nil
	}
	tag, err := q.c.pg.Exec(ctx, sql, append([]any{q.mode}, args...)...)
	if err != nil {
		return 0, q.c.failed(ctx, "", err)
	}
	return tag.RowsAffected(), nil
}

func (q querier) Query(ctx context.Context, sql string, args []any, each func(Row) error) error {
	rows, err := q.c.pg.Query(ctx, sql, append([]any{q.mode}, args...)...)
	if err != nil {
		rows.Close()
		return q.c.failed(ctx, "", err)
	}
	if err := feed(rows, q.c.session, each); err != nil {
		return q.c.failed(ctx, "", err)
	}
	return nil
}

func asError(err error) *Error {
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	return &Error{Class: classify(err), Code: SQLState(err), err: err}
}
