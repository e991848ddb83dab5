package pgdb

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
)

// recipe is what connections are made from: a configuration of pgxpool, from a
// connection string or from the caller's pool.
type recipe struct {
	config *pgxpool.Config

	show trust
}

// parse makes a recipe from a connection string. It goes through pgxpool so that
// a string meant for a pool, with pool_max_conns and the like, works here too.
func parse(dsn string) (*recipe, error) {
	if err := checkDSN(dsn); err != nil {
		return nil, err
	}
	config, err := parseConfig(dsn)
	if err != nil {
		return nil, err
	}
	if err := checkConfig(config.ConnConfig); err != nil {
		return nil, err
	}
	return &recipe{config: config, show: trust{names: true, server: knownParameters(config.ConnConfig)}}, nil
}

// ConnConfig returns what a connection string means, as [Open] takes it.
func ConnConfig(dsn string) (*pgx.ConnConfig, error) {
	r, err := parse(dsn)
	if err != nil {
		return nil, err
	}
	return r.config.ConnConfig, nil
}

// fromPool copies the configuration of a pool and leaves the pool alone.
func fromPool(pool *pgxpool.Pool) (*recipe, error) {
	if pool == nil {
		return nil, errors.New("the pool is nil")
	}
	config := pool.Config()
	if err := checkConfig(config.ConnConfig); err != nil {
		return nil, err
	}
	// The pool's owner may have put anything into the configuration after
	// parsing, so a connection string that we would have refused is no reason to
	// refuse the pool: it only keeps us from printing what came of it.
	names := checkDSN(config.ConnString()) == nil
	return &recipe{config: config, show: trust{names: names, server: names && knownParameters(config.ConnConfig)}}, nil
}

// owned makes the backend that dials connections of our own.
func (r *recipe) owned(o Options) *owned {
	c := r.config.ConnConfig

	// A statement that ends with its context must end at once and take the
	// connection with it. The caller may have chosen a watcher that asks the
	// server to cancel and waits.
	c.BuildContextWatcherHandler = func(pc *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.DeadlineContextWatcherHandler{Conn: pc.Conn()}
	}
	// Neither the tracer nor the notifications of the application are about us.
	// Without a handler pgx would collect notifications for ever, in case
	// AfterConnect listens to something.
	c.Tracer = nil
	c.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) {}

	if c.RuntimeParams["application_name"] == "" {
		if c.RuntimeParams == nil {
			c.RuntimeParams = map[string]string{}
		}
		c.RuntimeParams["application_name"] = applicationName(o.Application)
	}
	w := &owned{recipe: r, opts: o, sockets: newSockets()}
	w.direct, w.pooled = modes(c)
	return w
}

// applicationName makes a name that the server shows as it is: it cuts at 63
// bytes and replaces what is not printable ASCII.
func applicationName(suffix string) string {
	name := strings.TrimSpace("pgmutex " + suffix)
	name = strings.Map(func(r rune) rune {
		if r < 0x20 || r > 0x7e {
			return '?'
		}
		return r
	}, name)
	return name[:min(len(name), 63)]
}

// modes chooses how statements are run on direct and on pooled connections. A
// mode that the caller asked for is kept where it is safe behind a pooler:
// whoever chose it may know of one that we cannot see.
func modes(c *pgx.ConnConfig) (direct, pooled pgx.QueryExecMode) {
	switch mode := c.DefaultQueryExecMode; {
	case mode == pgx.QueryExecModeSimpleProtocol:
		return mode, mode
	case mode == pgx.QueryExecModeCacheDescribe && c.DescriptionCacheCapacity > 0:
		return mode, mode
	case mode == pgx.QueryExecModeCacheStatement && c.StatementCacheCapacity > 0:
		return mode, pgx.QueryExecModeExec
	}
	return pgx.QueryExecModeExec, pgx.QueryExecModeExec
}
