package advisory

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmutex/pgmutex/internal/pgdb"
)

// The refusals. Each says what is the matter and what to do about it.
var (
	errPooler = fmt.Errorf("a connection pooler stands between this client and the server, so a lock would belong to a session "+
		"that others use as well: connect to the server itself, use the lease engine, or, if the pooler is in session mode, "+
		"set advisory.Options.DirectSession: %w", errors.ErrUnsupported)
	errBlind = fmt.Errorf("the driver of the *sql.DB does not show whether a connection pooler stands in between: "+
		"use a driver that is built on pgx, a connection string, the lease engine, or, if there is no pooler or it is in session mode, "+
		"set advisory.Options.DirectSession: %w", errors.ErrUnsupported)
	errStandby = fmt.Errorf("the server is a standby, whose advisory locks exclude nobody on the primary: "+
		"connect to the primary (target_session_attrs=primary): %w", errors.ErrUnsupported)
	errNoLocks  = fmt.Errorf("the server has no session advisory locks that work: use the lease engine: %w", errors.ErrUnsupported)
	errTimeless = fmt.Errorf("the connection takes no deadlines, as in a tunnel of golang.org/x/crypto/ssh, so a server that has gone silent "+
		"would not be noticed; dial it in a way that does, or use the lease engine: %w", errors.ErrUnsupported)
	errForsaken = errors.New("the client was closed before the server answered")
	errPassedOn = errors.New("the server's process has changed: a pooler passes this connection on, " +
		"and advisory.Options.DirectSession does not hold")
)

// open makes a session and verifies that locks can be held on it.
func (e *store) open(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.life, cancel)()

	w, err := e.dial(ctx)
	if err != nil {
		return nil, err
	}
	s := newSession(e, w)
	// What ctx cannot do, since nothing of a wire takes one.
	stop := context.AfterFunc(ctx, w.kill)
	if err = s.introduce(); err == nil {
		s.hear()
		// It may have ended with that, and nobody else would find out.
		err = s.ending()
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		w.kill()
		w.wait()
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		return nil, fmt.Errorf("%s: %w", e.dialer.Address(), err)
	}
	return s, nil
}

// introduce learns who the server is, and refuses what no lock can be held on.
func (s *session) introduce() error {
	if w, ok := s.w.(*pgWire); ok && w.pc.Conn().SetDeadline(time.Time{}) != nil {
		return errTimeless
	}
	process := s.w.process()
	if process == 0 && !s.e.set.vouched {
		return errBlind
	}
	expected := process
	if s.e.set.vouched {
		expected = 0
	}
	rows, err := s.query(s.e.sql.introduce, expected)
	if err != nil {
		if class := pgdb.Classify(err); class == pgdb.Undefined {
			return fmt.Errorf("%w (%w)", errNoLocks, err)
		}
		return err
	}
	if len(rows) != 1 || len(rows[0]) != 5 {
		return errNoLocks
	}
	r := rows[0]
	s.backend = number(r[0])
	s.limit = int(max(number(r[3])/2, 1))
	switch {
	case s.backend != process && !s.e.set.vouched:
		return errPooler
	case truth(r[2]):
		return errStandby
	case !truth(r[4]):
		return errNoLocks
	}
	if !s.e.set.tokens {
		return nil
	}
	// The role's limit is made for queries; the other settings come with the
	// first request.
	if err := s.command("SET statement_timeout = 0"); err != nil {
		return err
	}
	return s.raise()
}

// configure makes the session a lease, for the first request on it and whenever
// the lease is another one than before.
func (s *session) configure(lease int64, label string) error {
	idle, interval := max(lease/3/1000, 1), max(lease/5/1000, 1)
	if _, err := s.query(s.e.sql.settings, lease, idle, interval, "pgmutex "+printable(label)); err != nil {
		return err
	}
	if _, err := s.query(s.e.sql.check, max(lease/3, 1)); err != nil && s.isOver() {
		return err
	}
	return nil
}

// printable makes of a label what the server shows as it is.
func printable(label string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r > 0x7e {
			return '?'
		}
		return r
	}, label)
}

// dial makes a connection of our own, or borrows one.
func (e *store) dial(ctx context.Context) (wire, error) {
	db := e.dialer.Lender()
	if db == nil {
		conn, socket, err := e.dialer.Dial(ctx, e.heard)
		if err != nil {
			return nil, err
		}
		return newPGWire(conn, socket, e.heard), nil
	}
	loan, err := db.Conn(ctx)
	if err != nil {
		return nil, pgdb.Safe(ctx, err)
	}
	// The connection is used inside of one call of Raw, which lasts as long as
	// the session: nobody else gets at it, and what it returns has database/sql
	// throw the connection away, with the settings that were made on it.
	wires := make(chan wire, 1)
	errs := make(chan error, 1)
	end, returned := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(returned)
		err := loan.Raw(func(driverConn any) error {
			if d, ok := driverConn.(interface{ Conn() *pgx.Conn }); ok {
				w := newPGWire(d.Conn(), below(d.Conn().PgConn().Conn()), e.heard)
				w.borrowed, w.returned = end, returned
				wires <- w
			} else if w := newForeignWire(driverConn, end, returned); w != nil {
				wires <- w
			} else {
				return errBlind
			}
			<-end
			return driver.ErrBadConn
		})
		errs <- err
		_ = loan.Close()
	}()
	select {
	case w := <-wires:
		return w, nil
	case <-returned:
		return nil, fmt.Errorf("borrow a connection: %w", <-errs)
	}
}

// number reads an integer column; NULL is zero.
func number(text []byte) int64 {
	n, _ := strconv.ParseInt(string(text), 10, 64)
	return n
}

// truth reads a boolean column as text, in the forms that drivers give it.
func truth(text []byte) bool { return len(text) > 0 && text[0] == 't' }

// idOf returns the key that a channel is about.
func idOf(channel string) (int64, bool) {
	text, ok := strings.CutPrefix(channel, channelPrefix)
	if !ok {
		return 0, false
	}
	id, err := strconv.ParseInt(text, 10, 64)
	return id, err == nil
}
