package advisory

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pgmutex/pgmutex/internal/schema"
)

// foreignWire is a borrowed connection of another driver than pgx, used through
// the interfaces of database/sql/driver. It cannot read between statements, so it
// hears no notifications and learns of the end of its session by the next sign of
// life only.
//
// Parameters are written into the text: drivers differ in how they pass them on,
// and ours are numbers and a label.
type foreignWire struct {
	conn     driver.QueryerContext
	end      chan struct{} // closed to give the connection back
	returned chan struct{}
	over     atomic.Bool
	life     context.Context
	cut      context.CancelFunc
	until    time.Time
	signal   chan struct{} // capacity 1
}

// newForeignWire returns nil for a driver that cannot be used.
func newForeignWire(driverConn any, end, returned chan struct{}) *foreignWire {
	conn, ok := driverConn.(driver.QueryerContext)
	if !ok {
		return nil
	}
	w := &foreignWire{conn: conn, end: end, returned: returned, signal: make(chan struct{}, 1)}
	w.life, w.cut = context.WithCancel(context.Background())
	return w
}

func (w *foreignWire) process() int64 { return 0 }
func (w *foreignWire) closed() bool   { return w.over.Load() }
func (w *foreignWire) listens() bool  { return false }
func (w *foreignWire) hears() bool    { return false }

func (w *foreignWire) query(until time.Time, st *statement, args ...any) (rows []row, err error) {
	ctx, cancel := context.WithDeadline(w.life, until)
	defer cancel()
	rows, err = w.read(ctx, inline(st.text, args))
	if err != nil {
		var coded interface{ SQLState() string }
		// What is not an error of the server's leaves the session in doubt, and so
		// does one that ends sessions, or a statement of ours by its deadline.
		if !errors.As(err, &coded) || ctx.Err() != nil || strings.HasPrefix(coded.SQLState(), "57P") || strings.HasPrefix(coded.SQLState(), "08") {
			w.over.Store(true)
		}
		err = fmt.Errorf("%s: %w", st.name, err)
	}
	return rows, err
}

func (w *foreignWire) read(ctx context.Context, text string) (rows []row, err error) {
	result, err := w.conn.QueryContext(ctx, text, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, result.Close()) }()
	values := make([]driver.Value, len(result.Columns()))
	for {
		switch err := result.Next(values); {
		case errors.Is(err, io.EOF):
			return rows, nil
		case err != nil:
			return nil, err
		}
		r := make(row, len(values))
		for i, v := range values {
			r[i] = textOf(v)
		}
		rows = append(rows, r)
	}
}

// textOf returns a value as PostgreSQL would write it.
func textOf(v driver.Value) []byte {
	switch v := v.(type) {
	case nil:
		return nil
	case []byte:
		return append([]byte{}, v...)
	default:
		return fmt.Append(nil, v)
	}
}

// inline writes parameters into a text.
func inline(text string, args []any) string {
	pairs := make([]string, 0, 2*len(args))
	for i, a := range args {
		literal := "NULL"
		switch a := a.(type) {
		case int64:
			literal = "(" + strconv.FormatInt(a, 10) + ")"
		case string:
			literal = schema.Literal(a)
		}
		pairs = append(pairs, "$"+strconv.Itoa(i+1), literal)
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

func (w *foreignWire) command(until time.Time, text string) error {
	_, err := w.query(until, &statement{name: "command", text: text})
	return err
}

func (w *foreignWire) arm(until time.Time) { w.until = until }

func (w *foreignWire) interrupt() {
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

func (w *foreignWire) rest() error {
	timer := time.NewTimer(time.Until(w.until))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.signal:
	case <-w.life.Done():
		return context.Cause(w.life)
	}
	return nil
}

func (w *foreignWire) close() { w.kill() }

func (w *foreignWire) kill() {
	w.over.Store(true)
	w.cut()
}

func (w *foreignWire) forsake() { w.kill() }

// abandon cannot keep a connection of another driver open: its locks are free at
// once.
func (w *foreignWire) abandon(time.Duration) { w.kill() }

func (w *foreignWire) wait() {
	close(w.end)
	<-w.returned
}
