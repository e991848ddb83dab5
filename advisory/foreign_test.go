package advisory_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// foreignDB is a *sql.DB of a driver that shows nothing of itself but what
// database/sql asks for.
func foreignDB(t testing.TB, dsn string) *sql.DB {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	db := sql.OpenDB(foreignConnector{stdlib.GetConnector(*config)})
	t.Cleanup(func() { _ = db.Close() })
	return db
}

type foreignConnector struct{ driver.Connector }

func (c foreignConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return foreignDriverConn{conn}, nil
}

// foreignDriverConn hides the methods of pgx's connection.
type foreignDriverConn struct{ driver.Conn }

func (c foreignDriverConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c foreignDriverConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c foreignDriverConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, ok := c.Conn.(driver.ConnBeginTx)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return tx.BeginTx(ctx, opts)
}
