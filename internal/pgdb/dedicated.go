package pgdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A Dialer makes single connections that belong to the caller, for what lives in
// the session itself. It is safe for concurrent use.
type Dialer struct {
	recipe *recipe
	pool   *sql.DB
}

// NewDialer accepts the same sources as [Open], with the same errors, and does
// no I/O either.
func NewDialer[S Source](source S) (*Dialer, error) {
	var r *recipe
	var err error
	switch s := any(source).(type) {
	case string:
		r, err = parse(s)
	case *pgxpool.Pool:
		r, err = fromPool(s)
	case *sql.DB:
		if _, err := lend(s, Options{}.withDefaults()); err != nil {
			return nil, err
		}
		return &Dialer{pool: s}, nil
	}
	if err != nil {
		return nil, err
	}
	r.owned(Options{}.withDefaults()) // which prepares the configuration
	return &Dialer{recipe: r}, nil
}

// Lender returns the *sql.DB that the source is, nil for the others. Dial does
// not work with it: its connections are borrowed by the caller.
func (d *Dialer) Lender() *sql.DB { return d.pool }

// Address is as [DB.Address].
func (d *Dialer) Address() string {
	if d.recipe == nil {
		return "the database of the *sql.DB"
	}
	return address(d.recipe.config.ConnConfig, d.recipe.show)
}

// Dial makes a connection within ctx, with the hooks of the pool that it came
// from, and leaves the session as the server made it. Heard takes
// notifications, during any call that reads from the connection. The second
// result is what lies below the connection, TLS excluded: closing it is the only
// way to end the connection that neither waits nor sends anything.
//
// The error is an *Error of class NotSent and quotes nothing of a password.
func (d *Dialer) Dial(ctx context.Context, heard func(channel, payload string)) (*pgx.Conn, net.Conn, error) {
	config := d.recipe.config.ConnConfig.Copy()
	if hook := d.recipe.config.BeforeConnect; hook != nil {
		if err := hook(ctx, config); err != nil {
			return nil, nil, notSent("", fmt.Errorf("BeforeConnect of the pool: %w", err))
		}
		if err := checkConfig(config); err != nil {
			return nil, nil, notSent("", err)
		}
	}
	config.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) { heard(n.Channel, n.Payload) }
	config.ConnectTimeout = perHost(ctx, config)
	var socket net.Conn
	var connected atomic.Bool
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		// A connection that fails later would dial again, to cancel its statement
		// on a server that does not answer; the session's own end does that.
		if connected.Load() {
			return nil, errConnected
		}
		c, err := dial(ctx, network, addr)
		if err == nil {
			socket = c // of the attempt that succeeded, which is the last
		}
		return c, err
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, nil, connectError(ctx, config, d.recipe.show, err)
	}
	connected.Store(true)
	if hook := d.recipe.config.AfterConnect; hook != nil {
		if err := hook(ctx, conn); err != nil {
			_ = socket.Close()
			return nil, nil, notSent("", fmt.Errorf("AfterConnect of the pool: %w", err))
		}
	}
	return conn, socket, nil
}

var errConnected = errors.New("this connection dials once")

// Safe makes an error of a driver one that may be shown: it says why a
// connection could not be used without quoting what it was made from.
func Safe(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	var own *Error
	if errors.As(err, &own) {
		return err
	}
	return connectError(ctx, nil, trust{}, err)
}
