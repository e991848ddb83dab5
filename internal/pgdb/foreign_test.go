package pgdb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"testing"
	"time"
)

// scripted is a driver's connection whose answers to everything but the
// introduction are a test's.
type scripted struct {
	driver.Conn
	answer func(ctx context.Context) error
	breaks bool // by the first answer
	broken bool
	closed chan struct{} // nil for the driver itself
}

func (c *scripted) Connect(context.Context) (driver.Conn, error) {
	return &scripted{answer: c.answer, breaks: c.breaks, closed: make(chan struct{})}, nil
}
func (*scripted) Driver() driver.Driver { return nil }
func (c *scripted) IsValid() bool       { return !c.broken }

func (c *scripted) Close() error {
	if c.closed == nil {
		return nil
	}
	select {
	case <-c.closed:
	default:
		close(c.closed)
	}
	return nil
}

func (c *scripted) QueryContext(ctx context.Context, text string, _ []driver.NamedValue) (driver.Rows, error) {
	if text == "SELECT 'introduced'" {
		c.broken = c.breaks
		return nil, c.answer(ctx)
	}
	return &facts{}, nil
}

func (c *scripted) ExecContext(ctx context.Context, _ string, _ []driver.NamedValue) (driver.Result, error) {
	c.broken = c.breaks
	return driver.RowsAffected(0), c.answer(ctx)
}

type facts struct{ done bool }

func (*facts) Columns() []string { return make([]string, 10) }
func (*facts) Close() error      { return nil }

func (f *facts) Next(row []driver.Value) error {
	if f.done {
		return io.EOF
	}
	f.done = true
	copy(row, []driver.Value{int64(1), int64(150018), false, "app", []byte("db"), false, "on", "read committed", true, nil})
	return nil
}

type fatal struct{ stateError }

func (fatal) Fatal() bool { return true }

// What another driver's errors say about the statement, and about its
// connection.
func TestForeignErrors(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		want   Class
		kept   bool
		breaks bool
	}{
		"refused":     {stateError("22012"), Definite, true, false},
		"row locked":  {stateError("55P03"), RowLocked, true, false},
		"canceled":    {stateError("57014"), Canceled, true, false},
		"read-only":   {stateError("25006"), ReadOnly, false, false},
		"fatal":       {fatal{"53100"}, Unknown, false, false},
		"given up":    {stateError("53100"), Unknown, false, true}, // in a language that the driver does not know
		"terminated":  {stateError("57P01"), Unknown, false, false},
		"cut":         {io.ErrUnexpectedEOF, Unknown, true, false},
		"bad":         {driver.ErrBadConn, Unknown, false, false}, // which lib/pq says of a lost reply, too
		"not an idea": {errors.New("?"), Unknown, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			pool := sql.OpenDB(&scripted{answer: func(context.Context) error { return c.err }, breaks: c.breaks})
			defer pool.Close()
			db := open(t, pool, Options{})
			wantClass(t, db.Run(t.Context(), Work, st("SELECT 'introduced'"), nil, nil), c.want)
			wantClass(t, db.Script(t.Context(), "script", "X"), c.want)
			if f := db.Facts(); f.Direct || f.Settings || f.Version != 150018 || f.Role != "app" || f.Database != "db" {
				t.Errorf("facts: %+v", f)
			}
			if kept := pool.Stats().OpenConnections == 1; kept != c.kept {
				t.Errorf("the connection was kept: %v", kept)
			}
			if _, err := db.Listen("c", func(string, bool) {}); !errors.Is(err, ErrNoListen) {
				t.Errorf("Listen: %v", err)
			}
		})
	}
}

// After the end of the context, the server's word about the cancellation counts;
// a driver that does not come back is cut off.
func TestForeignContextEnds(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(ctx context.Context) error
		want   Class
	}{
		"canceled by the server": {func(ctx context.Context) error { <-ctx.Done(); return stateError("57014") }, Canceled},
		"another refusal":        {func(ctx context.Context) error { <-ctx.Done(); return stateError("55P03") }, RowLocked},
		"no answer":              {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			pool := sql.OpenDB(&scripted{answer: c.answer})
			defer pool.Close()
			db := open(t, pool, Options{})
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			err := db.Run(ctx, Work, st("SELECT 'introduced'"), nil, nil)
			wantClass(t, err, c.want)
			wantIs(t, err, context.DeadlineExceeded)
			if n := pool.Stats().OpenConnections; n != 0 {
				t.Error("the connection was kept")
			}
		})
	}

	deaf := &deafDriver{}
	pool := sql.OpenDB(deaf)
	defer pool.Close()
	db := open(t, pool, Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	wantClass(t, db.Run(ctx, Work, st("SELECT 'introduced'"), nil, nil), Unknown)
	if n := pool.Stats().OpenConnections; n != 0 {
		t.Error("the connection was kept")
	}
}

// deafDriver reads until its connection is closed.
type deafDriver struct{ scripted }

func (*deafDriver) Connect(context.Context) (driver.Conn, error) {
	c := &scripted{closed: make(chan struct{})}
	c.answer = func(context.Context) error { <-c.closed; return io.ErrClosedPipe }
	return c, nil
}
