package pgdb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// How long a host may take to answer where the caller's configuration sets no
// limit and several hosts want to be tried.
const hostTimeout = 10 * time.Second

// onlyTimeout bounds the same where there is one host only and nobody set
// connect_timeout: a server that accepts connections and says nothing would be
// waited for by a caller whose context has no end, for ever.
const onlyTimeout = 30 * time.Second

// owned is the backend whose connections are our own.
type owned struct {
	recipe  *recipe
	opts    Options
	sockets *sockets

	direct, pooled pgx.QueryExecMode
}

func (w *owned) idle(_ Lane, idle, _ time.Duration) time.Duration { return idle }

func (w *owned) room() (bool, time.Duration) { return true, 0 }

func (w *owned) wanted() bool { return false }

func (w *owned) kill() { w.sockets.kill() }

func (w *owned) address() string { return address(w.recipe.config.ConnConfig, w.recipe.show) }

// dial makes a connection for LISTEN, whose notifications heard takes.
func (w *owned) dial(ctx context.Context, db *DB, heard pgconn.NotificationHandler) (*ownConn, error) {
	return w.build(ctx, db, heard, nil)
}

// build makes a connection, learns what is below it, and gives its session our
// settings. For a lane heard is nil, and o hears how far the attempt has come.
func (w *owned) build(ctx context.Context, db *DB, heard pgconn.NotificationHandler, o *opening) (*ownConn, error) {
	// A hook of the caller's, or a resolver, may take its time: it ends with our
	// life too.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(db.life, cancel)()

	config := w.recipe.config.ConnConfig.Copy()
	if hook := w.recipe.config.BeforeConnect; hook != nil {
		if err := hook(ctx, config); err != nil {
			return nil, notSent("", fmt.Errorf("BeforeConnect of the pool: %w", err))
		}
		if err := checkConfig(config); err != nil {
			return nil, notSent("", err)
		}
	}
	c := &ownConn{traced: config.Tracer != nil}
	theirs := config.OnNotice
	config.OnNotice = func(pc *pgconn.PgConn, n *pgconn.Notice) {
		if n.Code == "01000" {
			c.warned.Store(true)
		}
		if theirs != nil {
			theirs(pc, n)
		}
	}
	if heard != nil {
		config.OnNotification = heard
	}
	config.DialFunc = w.sockets.dialer(db.life, config.DialFunc)
	if o != nil {
		config.DialFunc = o.dialer(config.DialFunc)
	}
	pg, err := o.knock(ctx, config)
	if err != nil {
		return nil, connectError(ctx, config, w.recipe.show, err)
	}
	c.pg, c.db = pg, db
	ready := false
	defer func() {
		if !ready {
			c.close()
		}
	}()
	if hook := w.recipe.config.AfterConnect; hook != nil {
		if err := hook(ctx, pg); err != nil {
			return nil, notSent("", fmt.Errorf("AfterConnect of the pool: %w", err))
		}
	}
	if err := w.introduce(ctx, c); err != nil {
		return nil, connectError(ctx, config, w.recipe.show, err)
	}
	if db.opts.OnConnect != nil && heard == nil {
		c.session, err = db.opts.OnConnect(ctx, querier{c: c, mode: w.pooled})
		if err != nil {
			return nil, notSent("", err)
		}
	}
	ready = true
	return c, nil
}

// introduce asks the server who it is and gives the session our settings, unless
// a pooler stands in between: both in one statement, which no pooler can take
// apart, and decided by the server.
func (w *owned) introduce(ctx context.Context, c *ownConn) error {
	pid := int32(c.pg.PgConn().PID())
	f, backend, err := c.ask(ctx, w.pooled, pid, milliseconds(w.opts.RowWait))
	if err != nil {
		return err
	}
	f.Direct = backend == pid
	f.Settings = f.Direct
	c.known, c.mode = f, w.direct
	if !f.Direct {
		c.mode = w.pooled
	}
	return nil
}

// ask runs the introduction, with settings for the process pid.
func (c *ownConn) ask(ctx context.Context, mode pgx.QueryExecMode, pid int32, wait string) (*Facts, int32, error) {
	if mode != pgx.QueryExecModeSimpleProtocol {
		mode = pgx.QueryExecModeExec
	}
	f := &Facts{}
	var backend int32
	err := c.pg.QueryRow(ctx, introduction, mode, pid, wait).Scan(
		&backend, &f.Version, &f.Standby, &f.Role, &f.Database, &f.ReadOnly, &f.SynchronousCommit, &f.Isolation, nil, nil)
	return f, backend, err
}

// perHost divides the time that ctx leaves among the hosts. Without it, a first
// host that swallows packets, as a dead primary does, would use up every
// caller's time and the second would never be asked.
func perHost(ctx context.Context, config *pgx.ConnConfig) time.Duration {
	limit := config.ConnectTimeout
	hosts := map[string]bool{net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))): true}
	for _, f := range config.Fallbacks {
		hosts[net.JoinHostPort(f.Host, strconv.Itoa(int(f.Port)))] = true
	}
	if len(hosts) < 2 {
		if limit == 0 {
			limit = onlyTimeout
		}
		return limit
	}
	if limit == 0 {
		limit = hostTimeout
	}
	if deadline, ok := ctx.Deadline(); ok {
		limit = max(min(limit, time.Until(deadline)/time.Duration(len(hosts))), time.Millisecond)
	}
	return limit
}

func milliseconds(d time.Duration) string {
	return strconv.FormatInt(max(1, d.Milliseconds()), 10) + "ms"
}

// ownConn is a connection that belongs to us alone.
type ownConn struct {
	db      *DB
	pg      *pgx.Conn
	mode    pgx.QueryExecMode
	known   *Facts
	session any
	args    []any

	traced       bool                    // by the application, through pgx
	preparations map[string]*preparation // by text
	eqb          pgx.ExtendedQueryBuilder

	warned atomic.Bool // a notice with SQLSTATE 01000 came during the statement
	bad    bool        // the last error leaves the connection in doubt
}

var errNotDurable = errors.New("committed, but the wait for the synchronous standby was canceled")

func (c *ownConn) facts() *Facts { return c.known }

func (c *ownConn) usable() bool {
	return !c.bad && !c.pg.IsClosed() && c.pg.PgConn().TxStatus() == 'I'
}

func (c *ownConn) stale() bool { return c.pg.IsClosed() || unread(c.pg.PgConn().Conn()) }

func (c *ownConn) ping(ctx context.Context) error {
	if err := c.pg.Ping(ctx); err != nil {
		c.bad = true
		return wrap("ping", err)
	}
	return nil
}

// close closes the connection. One that its own failure has closed already may
// still be sending a cancel request and reading to the end, which Close of the
// DB waits for.
func (c *ownConn) close() {
	pc := c.pg.PgConn()
	if !pc.IsClosed() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = pc.Close(ctx)
		return
	}
	select {
	case <-pc.CleanupDone():
	default:
		// The caller holds its lane, which Close has not passed yet, or is a
		// goroutine that Close waits for: the counter is not at zero for good.
		c.db.work.Go(func() { <-pc.CleanupDone() })
	}
}

func (c *ownConn) run(ctx context.Context, st Statement, args []any, each func(Row) error) error {
	text := st.text(c.known.Settings)
	err := c.once(ctx, st.Name, text, args, each)
	switch SQLState(err) {
	case "0A000":
		// "Cached plan must not change result type", after a change to the
		// table. Told from other uses of the code by the function that raised
		// it: the text is translated.
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Routine != "RevalidateCachedQuery" || !c.usable() || c.unprepare(ctx, text) != nil {
			return err
		}
	case "26000", "42P05":
		// The name of a prepared statement is unknown, or taken: something
		// shares or resets the session after all.
		if c.mode == pgx.QueryExecModeExec || c.mode == pgx.QueryExecModeSimpleProtocol {
			return err
		}
		c.db.log.Warn("pgmutex: the session of a direct connection was changed by something in between; prepared statements are given up on it",
			"address", c.db.Address())
		c.mode = pgx.QueryExecModeExec
		if c.usable() {
			_ = c.unprepare(ctx, text) // a connection that was lent is seen again
		}
	default:
		return err
	}
	// All of these are errors of the server, so nothing was executed.
	if !c.usable() || ctx.Err() != nil {
		return err
	}
	return c.once(ctx, st.Name, text, args, each)
}

func (c *ownConn) once(ctx context.Context, what, text string, args []any, each func(Row) error) error {
	if ctx.Err() != nil {
		return notSent(what, contextError(ctx))
	}
	switch {
	case c.mode == pgx.QueryExecModeCacheStatement:
		if err := c.prepare(ctx, text); err != nil {
			return c.failed(ctx, what, c.early(err))
		}
	case c.preparations != nil:
		text += "\n" // or pgx would find what it has prepared, and that is given up
	}
	c.warned.Store(false)
	c.args = append(append(c.args[:0], c.mode), args...)
	rows, err := c.pg.Query(ctx, text, c.args...)
	clear(c.args)
	if err != nil {
		rows.Close()
		return c.failed(ctx, what, c.early(err))
	}
	err = feed(rows, c.session, each)
	if err != nil {
		return c.failed(ctx, what, err)
	}
	if c.warned.Load() {
		return &Error{Class: Unknown, Code: "01000", what: what, err: errNotDurable}
	}
	return nil
}

// feed calls each for all rows and reads the result to its end in any case. The
// error of each wins: it may be the one that ended rows.
func feed(rows pgx.Rows, session any, each func(Row) error) error {
	defer rows.Close()
	r := row{Rows: rows, session: session}
	var stop error
	for rows.Next() {
		if stop == nil && each != nil {
			stop = each(r)
		}
	}
	if stop != nil {
		return &Error{Class: Unknown, err: stop}
	}
	return rows.Err()
}

type row struct {
	pgx.Rows
	session any
}

func (r row) Session() any { return r.session }

// early judges an error that Query itself returned. In all modes but the simple
// protocol that comes before the statement is executed: arguments that cannot be
// encoded, or a connection that broke while the statement was being prepared.
func (c *ownConn) early(err error) error {
	if c.mode == pgx.QueryExecModeSimpleProtocol && !pgconn.SafeToRetry(err) {
		return err
	}
	e := &Error{Class: classify(err), Code: SQLState(err), err: err}
	if e.Class == Unknown {
		e.Class = NotSent
	}
	return e
}

// failed finishes the error of a statement and decides about the connection.
func (c *ownConn) failed(ctx context.Context, what string, err error) error {
	e := named(what, err)
	switch {
	case Classify(e) == ReadOnly:
		// The next connection may find the new primary.
		c.bad = true
	case Classify(e) == Unknown && SQLState(e) != "":
		c.bad = true
	}
	if ended := ctx.Err(); ended != nil && c.pg.IsClosed() && !errors.Is(e, ended) {
		return &Error{Class: Classify(e), Code: SQLState(e), err: errors.Join(e, contextError(ctx))}
	}
	return e
}

// named makes sure that err is an *Error that says what failed.
func named(what string, err error) error {
	var own *Error
	if !errors.As(err, &own) {
		return wrap(what, err)
	}
	if own.what == "" {
		e := *own
		e.what = what
		return &e
	}
	return err
}
