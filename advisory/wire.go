package advisory

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

	"github.com/pgmutex/pgmutex/internal/pgdb"
)

// A row is the columns of one row as text, nil for NULL.
type row = [][]byte

// A wire is one connection that is kept for its session. It is used by one
// goroutine at a time; interrupt and kill may be called from any.
//
// Nothing here takes a context: a statement on the session of a thousand holds
// must not end with the patience of one caller.
type wire interface {
	// query runs one statement and waits for its answer until the given time.
	// After an error that closed is true for, the session is lost.
	query(until time.Time, st *statement, args ...any) ([]row, error)

	// command runs a text that cannot be prepared, under the same rules.
	command(until time.Time, text string) error

	// rest waits for something to arrive: until the time that arm was given, or
	// interrupt, or a notification, which is all the same to the caller. An error
	// means that the session is lost.
	arm(until time.Time)
	rest() error
	interrupt()

	closed() bool

	// process is the server's process that the connection was given the key of,
	// zero where the driver does not tell.
	process() int64

	// listens tells whether notifications can arrive.
	listens() bool

	// hears tells whether they arrive with what they say.
	hears() bool

	// close ends the session in an orderly way, kill at once and without
	// waiting. Forsake, from any goroutine, makes what waits for an answer fail as
	// kill does, and leaves the connection to abandon if it can. Abandon leaves the
	// session to the server, which ends it when it has heard nothing for its lease;
	// what is on this side is freed after that time.
	close()
	kill()
	forsake()
	abandon(lease time.Duration)

	// wait is called once, when nobody uses the wire any more, and returns when
	// everything that it had running has ended.
	wait()
}

// pgWire is a connection of pgx. It uses the deadlines of the socket and not
// contexts, since pgx closes a connection whose context ends.
type pgWire struct {
	conn     *pgx.Conn
	pc       *pgconn.PgConn
	socket   net.Conn      // below TLS
	borrowed chan struct{} // closed to give a borrowed connection back; nil for our own
	returned chan struct{} // closed when that has been done
	left     bool
	forsaken atomic.Bool
	heard    func(channel, payload string)
	armed    time.Time // the socket's deadline; zero when it may be another one
	prepared map[*statement]*pgconn.StatementDescription
	exchange *pgdb.Exchange // the last one
}

func newPGWire(conn *pgx.Conn, socket net.Conn, heard func(channel, payload string)) *pgWire {
	return &pgWire{conn: conn, pc: conn.PgConn(), socket: socket, heard: heard, prepared: map[*statement]*pgconn.StatementDescription{}}
}

func (w *pgWire) process() int64 { return int64(w.pc.PID()) }
func (w *pgWire) closed() bool   { return w.pc.IsClosed() || w.forsaken.Load() }
func (w *pgWire) listens() bool  { return true }
func (w *pgWire) hears() bool    { return w.borrowed == nil }

func (w *pgWire) query(until time.Time, st *statement, args ...any) (rows []row, err error) {
	if !st.once {
		if err := w.begin(until, st, args...); err != nil {
			return nil, err
		}
		for done := false; !done && err == nil; {
			rows, done, err = w.finish(until, st)
			if !done {
				w.resume(until) // somebody had interrupted an answer that has come
			}
		}
		return rows, err
	}
	w.expect(until)
	result := w.pc.ExecParams(context.Background(), st.text, texts(args), nil, nil, nil)
	for result.NextRow() {
		r := make(row, len(result.Values()))
		for i, v := range result.Values() {
			if v != nil {
				r[i] = append([]byte{}, v...)
			}
		}
		rows = append(rows, r)
	}
	if _, err = result.Close(); err != nil {
		err = fmt.Errorf("%s: %w", st.name, err)
	}
	return rows, err
}

// knows tells whether a statement has been prepared.
func (w *pgWire) knows(st *statement) bool { return w.prepared[st] != nil }

// begin is the first half of query, and finish the second. That is done if it says
// so or with an error, and is called again otherwise: interrupt came.
func (w *pgWire) begin(until time.Time, st *statement, args ...any) (err error) {
	w.expect(until)
	known := w.prepared[st]
	if known == nil {
		known, err = w.pc.Prepare(context.Background(), "pgmutex_advisory_"+strconv.Itoa(len(w.prepared)), st.text, nil)
		if err == nil {
			w.prepared[st] = known
		}
	}
	if err == nil {
		w.exchange, err = pgdb.Send(w.pc, pgdb.Prepared{Name: known.Name, Params: texts(args)})
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", st.name, err)
	}
	return err
}

func (w *pgWire) finish(until time.Time, st *statement) (rows []row, done bool, err error) {
	if !w.forsaken.Load() { // before any deadline that this one may have replaced
		rows, done, err = w.exchange.Receive(until)
	}
	switch {
	case !done && w.forsaken.Load():
		return nil, true, errForsaken
	case done && w.borrowed != nil && w.exchange.Heard():
		w.overheard()
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", st.name, err)
	}
	return rows, done, err
}

func (w *pgWire) command(until time.Time, text string) error {
	w.expect(until)
	_, err := w.pc.Exec(context.Background(), text).ReadAll()
	return err
}

// texts makes parameters of numbers and texts.
func texts(args []any) [][]byte {
	values := make([][]byte, len(args))
	for i, a := range args {
		switch a := a.(type) {
		case int64:
			values[i] = strconv.AppendInt(nil, a, 10)
		case string:
			values[i] = []byte(a)
		}
	}
	return values
}

func (w *pgWire) arm(until time.Time) {
	w.armed = time.Time{}
	_ = w.pc.Conn().SetDeadline(until)
}

// expect is arm for an answer, which a few more moments may be waited for: so that
// the deadline of one is good for others. Each is a timer of the runtime's, and to
// set one that is due before all others wakes another thread up.
func (w *pgWire) expect(until time.Time) {
	if slack := w.armed.Sub(until); slack < 0 || slack > time.Until(until)/8 {
		w.resume(until)
	}
}

// resume is expect where the deadline may have been another one.
func (w *pgWire) resume(until time.Time) {
	until = until.Add(time.Until(until) / 16)
	w.arm(until)
	w.armed = until
}

// spoiled says that interrupt may have come.
func (w *pgWire) spoiled() { w.armed = time.Time{} }

// interrupt ends rest: a deadline in the past is an error that pgx does not take
// for the end of the connection, not even in the middle of a message.
func (w *pgWire) interrupt() { pgdb.Interrupt(w.pc) }

func (w *pgWire) rest() error {
	n, err := w.conn.WaitForNotification(context.Background())
	var network net.Error
	switch {
	case err != nil && !w.pc.IsClosed() && errors.As(err, &network) && network.Timeout():
		return nil
	case err != nil:
		return err
	case n != nil:
		w.heard(n.Channel, n.Payload)
	case w.borrowed != nil:
		w.heard("", "") // a handler of the application's has it
	}
	return nil
}

// overheard takes the notifications that came in the middle of something else. Pgx
// keeps them, unless the application has a handler of its own.
func (w *pgWire) overheard() {
	w.heard("", "")
	ended, end := context.WithCancel(context.Background())
	end()
	for n := (&pgconn.Notification{}); n != nil; {
		n, _ = w.conn.WaitForNotification(ended)
	}
}

func (w *pgWire) close() {
	if !w.pc.IsClosed() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = w.pc.Conn().SetDeadline(time.Time{})
		_ = w.pc.Close(ctx)
	}
}

func (w *pgWire) forsake() {
	w.forsaken.Store(true)
	_ = w.pc.Conn().SetDeadline(time.Unix(1, 0))
}

// kill may come from another goroutine than the one that uses the connection,
// which then finds it broken.
func (w *pgWire) kill() { _ = w.socket.Close() }

func (w *pgWire) abandon(lease time.Duration) {
	// The reference that the timer holds also keeps the socket from being
	// finalised.
	socket := w.socket
	time.AfterFunc(lease, func() { _ = socket.Close() })
	w.left = true
	if w.borrowed != nil {
		_, _ = w.pc.Hijack() // or database/sql would close it
	}
}

func (w *pgWire) wait() {
	switch {
	case w.borrowed != nil:
		close(w.borrowed)
		<-w.returned // what the driver still does then is its own affair
	case w.pc.IsClosed() && !w.left:
		<-w.pc.CleanupDone()
	}
}

// below returns what carries a connection, TLS taken off.
func below(c net.Conn) net.Conn {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		return t.NetConn()
	}
	return c
}
