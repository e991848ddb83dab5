package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/advisory"
	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/exitcode"
	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/lease"
	"github.com/pgmutex/pgmutex/local"
)

// A Store makes clients.
type Store struct {
	Choice
	client *pgmutex.Client
}

// Open checks everything that can be checked without connecting. Errors about
// the options name the flags that set them.
func Open(ctx context.Context, c Choice, opts pgmutex.Options) (*Store, error) {
	e, err := c.engine()
	if err != nil {
		return nil, c.blame(err)
	}
	opts.Lazy = true
	client, err := pgmutex.New(ctx, e, &opts)
	if err != nil {
		return nil, c.blame(err)
	}
	return &Store{Choice: c, client: client}, nil
}

// Client returns the client, which has not connected yet.
func (s *Store) Client() *pgmutex.Client { return s.client }

// engine makes the engine that was chosen.
func (c Choice) engine() (engine.Engine, error) {
	switch {
	case c.Local:
		return localEngine(c.Path)
	case c.Engine == Advisory:
		return advisory.New(c.URL, &advisory.Options{Table: c.Table})
	}
	return lease.New(c.URL, c.options())
}

func (c Choice) options() *lease.Options { return &lease.Options{Table: c.Table} }

// blame says which flag or variable an error about options or the connection
// string is about.
func (c Choice) blame(err error) error {
	var coded *exitcode.Error
	if errors.As(err, &coded) {
		return err
	}
	text := strings.TrimPrefix(err.Error(), "pgmutex: ")
	for _, o := range []struct{ field, flag string }{
		{"lease.Options.Table", "--table"}, {"advisory.Options.Table", "--table"}, {"StaleAfter", "--stale"}, {"Heartbeat", "--heartbeat"},
		{"AlertAfter", "--alert"}, {"HolderID", "--holder"}, {"Namespace", "--namespace"},
	} {
		if rest, ok := strings.CutPrefix(text, o.field+": "); ok {
			return usage("%s: %s", o.flag, strings.ReplaceAll(rest, "StaleAfter", "--stale"))
		}
	}
	if c.Local {
		return &exitcode.Error{Code: exitcode.NotConfigured, Err: errors.New(text)}
	}
	code := exitcode.NotConfigured
	if c.From == "--url" {
		code = exitcode.Usage
	}
	return &exitcode.Error{Code: code, Err: fmt.Errorf("%s: %s", c.From, text)}
}

// Ready does what with the client. If that shows that the store has not been set
// up, and create is set, it is set up and tried once more.
//
// A failure of either kind comes back with its exit code, except for what is
// about the lock, which comes back as it is.
func Ready[T any](ctx context.Context, s *Store, create bool, what func() (T, error)) (T, error) {
	value, err := what()
	if err == nil || !s.missing(ctx, err) {
		return value, s.Code(err)
	}
	if !create || errors.Is(err, fs.ErrPermission) {
		return value, s.Code(err)
	}
	if migrated := s.Migrate(ctx); migrated != nil {
		return value, migrated
	}
	value, err = what()
	return value, s.Code(err)
}

// missing tells whether an error says that tables or rights are missing, rather
// than that the server did not do as it was told.
func (s *Store) missing(ctx context.Context, err error) bool {
	if s.Local || s.TableLess() || ctx.Err() != nil || aboutLock(err) {
		return false
	}
	var coded interface{ SQLState() string }
	return !errors.As(err, &coded)
}

func aboutLock(err error) bool {
	for _, e := range []error{pgmutex.ErrHeld, pgmutex.ErrUnknown, pgmutex.ErrLost, pgmutex.ErrNotHeld, pgmutex.ErrClosed, errors.ErrUnsupported} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Code gives an error that is about the store its exit code.
func (s *Store) Code(err error) error {
	var state interface{ SQLState() string }
	switch {
	case err == nil, aboutLock(err):
		return err
	case errors.Is(err, fs.ErrPermission):
		return exitcode.With(exitcode.NotPermitted, err)
	case errors.As(err, &state):
		return exitcode.With(exitcode.Unavailable, err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case s.Local, s.TableLess():
		return exitcode.With(exitcode.Unavailable, err)
	}
	return exitcode.With(exitcode.NotConfigured, err)
}

// TableLess tells whether the engine does without tables: the advisory one, unless
// it takes its tokens from one.
func (c Choice) TableLess() bool { return !c.Local && c.Engine == Advisory && c.Table == "" }

// Migrate sets the store up, or brings it to this version.
func (s *Store) Migrate(ctx context.Context) error {
	if s.Local {
		return nil // makes its file by itself
	}
	err := lease.Migrate(ctx, s.URL, s.options())
	var state interface{ SQLState() string }
	switch {
	case err == nil:
		return nil
	case errors.As(err, &state) && !errors.Is(err, fs.ErrPermission):
		return exitcode.With(exitcode.Unavailable, err)
	}
	return exitcode.With(exitcode.NotConfigured, err)
}

// SQL returns what Migrate does as a script, with the rights for role unless
// that is empty: those of a client along with the tables, others by themselves.
// It needs no server.
func (c Choice) SQL(role, purpose string) (string, error) {
	if purpose != "client" {
		text, err := lease.Grants(c.options(), role, purpose)
		if err != nil {
			return "", c.blame(err)
		}
		return text, nil
	}
	text, err := lease.SQL(c.options(), role)
	if err != nil {
		return "", c.blame(err)
	}
	return text, nil
}

// Verify looks at the tables as the engine does. Problem is what is wrong with
// them, nil if nothing is, and rights that it is a lack of rights alone. An error
// means that the server could not be asked, and has its exit code.
func (s *Store) Verify(ctx context.Context) (problem error, rights bool, err error) {
	if s.TableLess() {
		return nil, false, nil
	}
	err = lease.Verify(ctx, s.URL, s.options())
	var state interface{ SQLState() string }
	switch {
	case err == nil:
		return nil, false, nil
	case errors.As(err, &state), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return nil, false, exitcode.With(exitcode.Unavailable, err)
	}
	return err, errors.Is(err, fs.ErrPermission), nil
}

// File is where a local store is.
func (s *Store) File() (string, error) {
	if s.Path != "" {
		return s.Path, nil
	}
	return local.DefaultPath()
}
