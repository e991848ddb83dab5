package pgdb

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// An Exchange is one prepared statement that has been sent, and what has been read
// of its answer. Pgx gives a connection up when the reading of an answer is broken
// off; an Exchange is read on, by another goroutine if need be. So whoever waits for
// the answer can read it and leave all the same.
//
// Until it is done nothing else may use the connection, and one goroutine at a time
// the Exchange.
type Exchange struct {
	pc    *pgconn.PgConn
	rows  [][][]byte
	err   error // of the server
	heard bool
}

// A Prepared is what an Exchange sends, with the formats of pgconn.ExecStatement.
type Prepared struct {
	Name          string
	Params        [][]byte
	ParamFormats  []int16
	ResultFormats []int16
}

// Send sends a prepared statement. After an error the connection is closed, and the
// statement may have been executed.
func Send(pc *pgconn.PgConn, st Prepared) (*Exchange, error) {
	f := pc.Frontend()
	f.SendBind(&pgproto3.Bind{
		PreparedStatement: st.Name, Parameters: st.Params,
		ParameterFormatCodes: st.ParamFormats, ResultFormatCodes: st.ResultFormats,
	})
	f.SendExecute(&pgproto3.Execute{})
	f.SendSync(&pgproto3.Sync{})
	if err := f.Flush(); err != nil {
		sever(pc)
		return nil, err
	}
	return &Exchange{pc: pc}, nil
}

// Receive reads the answer. It is done when that is complete, with the rows or the
// server's error, or when the connection failed, which is then closed. It is not
// done, and there is no error, when a read deadline of the connection was met before
// the time until, as whoever wants to break it off sets one; at that time it fails.
func (x *Exchange) Receive(until time.Time) (rows [][][]byte, done bool, err error) {
	for {
		msg, err := x.pc.ReceiveMessage(context.Background())
		if err != nil {
			// Pgx marks all errors of this call as safe to retry, which is about
			// something else. What it wraps is the truth.
			if inner := errors.Unwrap(err); inner != nil {
				err = inner
			}
			// Not whatever calls itself a time-out: a peer that TCP gives up does too.
			if !x.pc.IsClosed() && errors.Is(err, os.ErrDeadlineExceeded) && (until.IsZero() || time.Now().Before(until)) {
				return nil, false, nil
			}
			sever(x.pc)
			if x.err != nil {
				err = x.err // the server has said why
			}
			return nil, true, err
		}
		switch msg := msg.(type) {
		case *pgproto3.DataRow:
			x.rows = append(x.rows, copied(msg.Values))
		case *pgproto3.NotificationResponse:
			x.heard = true
		case *pgproto3.ErrorResponse:
			x.err = pgconn.ErrorResponseToPgError(msg)
		case *pgproto3.ReadyForQuery:
			if x.err != nil {
				return nil, true, x.err
			}
			return x.rows, true, nil
		}
	}
}

// Heard reports whether a notification came with the answer. Whoever handles those of
// the connection has it.
func (x *Exchange) Heard() bool { return x.heard }

// copied copies the columns of a row, which the next message overwrites.
func copied(values [][]byte) [][]byte {
	size := 0
	for _, v := range values {
		size += len(v)
	}
	buf := make([]byte, 0, size)
	row := make([][]byte, len(values))
	for i, v := range values {
		if v != nil {
			start := len(buf)
			buf = append(buf, v...)
			row[i] = buf[start:len(buf):len(buf)]
		}
	}
	return row
}

// Interrupt breaks off the reading of a connection by another goroutine. One that
// has no deadlines, as in a tunnel of golang.org/x/crypto/ssh, is closed.
func Interrupt(pc *pgconn.PgConn) {
	if pc.Conn().SetReadDeadline(time.Unix(1, 0)) != nil {
		hangUp(pc)
	}
}

// sever closes a connection that has failed, without waiting for anything.
func sever(pc *pgconn.PgConn) {
	if pc.IsClosed() {
		return
	}
	hangUp(pc)
	_ = pc.Close(context.Background())
}

// hangUp closes the socket: below TLS, which would say goodbye first.
func hangUp(pc *pgconn.PgConn) {
	c := pc.Conn()
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = t.NetConn()
	}
	_ = c.Close()
}
