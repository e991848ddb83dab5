package pgdb

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

func (c *ownConn) look(ctx context.Context, fn func(context.Context, Querier) error) error {
	// Such statements run once: nothing is prepared for them.
	q := querier{c: c, mode: pgx.QueryExecModeExec}
	if c.mode == pgx.QueryExecModeSimpleProtocol {
		q.mode = c.mode
	}
	return fn(ctx, q)
}

func (c *ownConn) script(ctx context.Context, what, text string) error {
	if ctx.Err() != nil {
		return notSent(what, contextError(ctx))
	}
	c.warned.Store(false)
	if _, err := c.pg.PgConn().Exec(ctx, text).ReadAll(); err != nil {
		return c.failed(ctx, what, err)
	}
	if c.warned.Load() {
		return &Error{Class: Unknown, Code: "01000", what: what, err: errNotDurable}
	}
	return nil
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
