package pgdb

import (
	"context"
	"database/sql"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Source is where PostgreSQL is: a connection string, a pool to take the
// configuration from, or a *sql.DB to borrow connections from.
type Source interface {
	string | *pgxpool.Pool | *sql.DB
}

// Options are the settings of a DB. The zero value is usable.
type Options struct {
	// Logger takes what is worth a line: connections lost, a pooler found. Nil
	// is silent.
	Logger *slog.Logger

	// Application is appended to the application_name "pgmutex" of our own
	// connections, unless the configuration that was passed in has one already.
	Application string

	// RowWait is the lock_timeout of our own sessions: no statement waits longer
	// than this for somebody else's row lock. Zero means 100 ms.
	RowWait time.Duration

	// OnConnect is called for each new connection of a lane before its first
	// statement, outside of any transaction. What it returns is
	// [Row.Session] for all rows of that connection. An error is treated as a
	// failure to connect.
	OnConnect func(ctx context.Context, q Querier) (any, error)
}

// withDefaults fills in what was left out.
func (o Options) withDefaults() Options {
	if o.RowWait <= 0 {
		o.RowWait = 100 * time.Millisecond
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Open prepares access to the database behind source. It does no network I/O:
// the first statement connects. An empty string means the environment of libpq.
//
// A *pgxpool.Pool is only a recipe: its configuration is copied, with
// BeforeConnect and AfterConnect, and no connection of it is ever taken. A
// *sql.DB lends connections, which are given back with their settings as they
// were.
//
// An error is about source itself: a connection string that cannot be parsed, or
// one that would make a part of a password show up in later messages. It quotes
// nothing of it.
func Open[S Source](source S, o Options) (*DB, error) {
	o = o.withDefaults()
	switch s := any(source).(type) {
	case string:
		r, err := parse(s)
		if err != nil {
			return nil, err
		}
		return newDB(r.owned(o), o), nil
	case *pgxpool.Pool:
		r, err := fromPool(s)
		if err != nil {
			return nil, err
		}
		return newDB(r.owned(o), o), nil
	case *sql.DB:
		l, err := lend(s, o)
		if err != nil {
			return nil, err
		}
		return newDB(l, o), nil
	}
	panic("unreachable: the type set of Source is closed")
}
