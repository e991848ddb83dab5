package pgdb

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgmutex/pgmutex/internal/faultconn"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// exchanger is a connection through a proxy with one prepared statement.
func exchanger(t *testing.T, sql string) (*faultconn.Proxy, *pgconn.PgConn) {
	t.Helper()
	proxy := faultconn.New(t, pgtest.Shared(t).Addr())
	pc := pgtest.Conn(t, proxy.DSN(fresh(t))).PgConn()
	_, err := pc.Prepare(t.Context(), "x", sql, nil)
	pgtest.Must(t, err)
	return proxy, pc
}

func send(t *testing.T, pc *pgconn.PgConn, until time.Time, param string) *Exchange {
	t.Helper()
	pgtest.Must(t, pc.Conn().SetDeadline(until))
	x, err := Send(pc, Prepared{Name: "x", Params: [][]byte{[]byte(param)}})
	pgtest.Must(t, err)
	return x
}

func TestExchangeIsReadOn(t *testing.T) {
	proxy, pc := exchanger(t, `SELECT repeat($1::text, 1000), NULL::text, ''::text FROM generate_series(1, 50)`)
	proxy.Chunk(faultconn.Replies, 700) // so that messages are cut in two
	until := time.Now().Add(time.Minute)
	for range 3 {
		proxy.HoldReplies()
		x := send(t, pc, until, "ab")
		broken := make(chan bool)
		go func() {
			_, done, err := x.Receive(until)
			broken <- !done && err == nil
		}()
		pgtest.Must(t, pc.Conn().SetReadDeadline(time.Unix(1, 0)))
		if !<-broken {
			t.Fatal("the reading was not broken off")
		}
		proxy.ReleaseReplies()
		// Again and again, wherever that is in the answer.
		var rows [][][]byte
		for done := false; !done; {
			set := make(chan struct{})
			timer := time.AfterFunc(100*time.Microsecond, func() {
				pc.Conn().SetReadDeadline(time.Unix(1, 0))
				close(set)
			})
			var err error
			rows, done, err = x.Receive(until)
			pgtest.Must(t, err)
			if !timer.Stop() {
				<-set // or it would spoil the deadline below
			}
			pgtest.Must(t, pc.Conn().SetDeadline(until))
		}
		if len(rows) != 50 {
			t.Fatalf("%d rows", len(rows))
		}
		for _, r := range rows {
			if len(r) != 3 || !bytes.Equal(r[0], bytes.Repeat([]byte("ab"), 1000)) || r[1] != nil || r[2] == nil || len(r[2]) != 0 {
				t.Fatalf("%q", r)
			}
		}
	}
}

func TestExchangeErrors(t *testing.T) {
	proxy, pc := exchanger(t, `SELECT 1 / $1::int`)
	until := time.Now().Add(time.Minute)
	_, done, err := send(t, pc, until, "0").Receive(until)
	if SQLState(err) != "22012" || !done || pc.IsClosed() {
		t.Fatalf("%v, %v", done, err)
	}
	rows, done, err := send(t, pc, until, "1").Receive(until)
	if err != nil || !done || len(rows) != 1 || string(rows[0][0]) != "1" {
		t.Fatalf("after an error: %q, %v, %v", rows, done, err)
	}

	// A deadline that is met is the end of the connection, as one that was lost.
	proxy.HoldReplies()
	soon := time.Now().Add(50 * time.Millisecond)
	_, done, err = send(t, pc, soon, "1").Receive(soon)
	if err == nil || !done || !pc.IsClosed() {
		t.Fatalf("a deadline: %v, %v", done, err)
	}
	if pgconn.SafeToRetry(err) {
		t.Errorf("%v says that nothing was sent", err)
	}
	if _, err := Send(pc, Prepared{Name: "x", Params: [][]byte{nil}}); err == nil {
		t.Error("sent over a connection that is closed")
	}
}

func TestExchangeTellsWhyTheServerLeft(t *testing.T) {
	_, pc := exchanger(t, `SELECT pg_terminate_backend(pg_backend_pid()), $1::text`)
	until := time.Now().Add(time.Minute)
	_, done, err := send(t, pc, until, "x").Receive(until)
	var pg *pgconn.PgError
	if !done || !errors.As(err, &pg) || pg.Code != "57P01" || !pc.IsClosed() {
		t.Fatalf("%v, %v", done, err)
	}
	if Classify(wrap("x", err)) != Unknown {
		t.Errorf("%v counts as %v", err, Classify(wrap("x", err)))
	}
}
