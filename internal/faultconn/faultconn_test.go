package faultconn_test

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmutex/pgmutex/internal/faultconn"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// fixture is a table, a way to it past the proxy, and one through it.
type fixture struct {
	proxy  *faultconn.Proxy
	direct string
	dsn    string
}

func setup(t *testing.T) fixture {
	t.Helper()
	t.Parallel()
	s := pgtest.Shared(t)
	direct := s.Database(t)
	pgtest.Exec(t, direct, "CREATE TABLE mark (n int)")
	proxy := faultconn.New(t, s.Addr())
	return fixture{proxy, direct, proxy.DSN(direct)}
}

func (f fixture) rows(t *testing.T) int64 {
	return pgtest.One[int64](t, f.direct, "SELECT count(*) FROM mark")
}

const insert = "INSERT INTO mark VALUES ($1)"

// begin runs a statement in the background and returns where its error goes.
// Under a fault it takes pgx.QueryExecModeExec: other modes ask for a description
// first, and the fault would hit that.
func begin(t *testing.T, conn *pgx.Conn, sql string, args ...any) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(t.Context(), sql, args...)
		done <- err
	}()
	return done
}

// silent fails the test if there is an answer within a moment.
func silent(t *testing.T, what string, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		t.Fatalf("%s: answered (%v)", what, err)
	case <-time.After(150 * time.Millisecond):
	}
}

func TestRelaysUnharmed(t *testing.T) {
	f := setup(t)
	conn := pgtest.Conn(t, f.dsn)
	pgtest.Exec(t, conn, insert, 1)
	f.proxy.Chunk(faultconn.Both, 1)
	if got := pgtest.One[int](t, conn, "SELECT length(repeat('x', 20000)) + length($1)", "yy"); got != 20002 {
		t.Errorf("got %d", got)
	}
	if n := f.rows(t); n != 1 {
		t.Errorf("%d rows, want 1", n)
	}
}

func TestUnixUpstream(t *testing.T) {
	t.Parallel()
	s := pgtest.Shared(t)
	proxy := faultconn.New(t, s.Socket())
	dsn := proxy.DSN(s.SocketDSN("postgres", pgtest.Superuser))
	if got := pgtest.One[bool](t, dsn, "SELECT inet_client_addr() IS NULL"); !got {
		t.Error("the server was reached over TCP")
	}
	keyValue := proxy.DSN("user=postgres dbname=postgres sslmode=disable")
	pgtest.One[int](t, keyValue, "SELECT 1")
}

func TestCutAfterCommit(t *testing.T) {
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeCacheStatement} {
		t.Run(mode.String(), func(t *testing.T) {
			f := setup(t)
			conn := pgtest.Conn(t, f.dsn)
			trap := f.proxy.CutAfter(faultconn.CommandComplete("INSERT"))
			if _, err := conn.Exec(t.Context(), insert, mode, 1); err == nil {
				t.Fatal("the client was told that its row is there")
			}
			<-trap.Sprung()
			if n := f.rows(t); n != 1 {
				t.Errorf("%d rows, want the committed one", n)
			}
			pgtest.WaitFor(t, "the connection to end", func() bool { return len(f.proxy.Conns()) == 0 })
			pgtest.Exec(t, f.dsn, insert, 2) // the trap was for one
		})
	}
}

func TestCutSkipsAndResets(t *testing.T) {
	f := setup(t)
	match := faultconn.CommandComplete("INSERT")
	match.Skip = 1
	trap := f.proxy.Trap(match, faultconn.Reset)
	conn := pgtest.Conn(t, f.dsn)
	pgtest.Exec(t, conn, insert, 1)
	if _, err := conn.Exec(t.Context(), insert, 2); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want a reset", err)
	}
	<-trap.Sprung()
	if n := f.rows(t); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
}

func TestCutOfARequestKeepsItFromTheServer(t *testing.T) {
	f := setup(t)
	conn := pgtest.Conn(t, f.dsn)
	trap := f.proxy.Trap(faultconn.Statement("INTO mark"), faultconn.Cut)
	if _, err := conn.Exec(t.Context(), insert, pgx.QueryExecModeExec, 1); err == nil {
		t.Fatal("the client was told that its row is there")
	}
	<-trap.Sprung()
	if n := f.rows(t); n != 0 {
		t.Errorf("%d rows, want none", n)
	}
	if f.proxy.Remove(trap) {
		t.Error("a sprung trap was still set")
	}
}

func TestHoldTrap(t *testing.T) {
	f := setup(t)
	conn := pgtest.Conn(t, f.dsn)
	other := pgtest.Conn(t, f.dsn)
	trap := f.proxy.Trap(faultconn.CommandComplete("INSERT"), faultconn.Hold)
	done := begin(t, conn, insert, pgx.QueryExecModeExec, 1)
	<-trap.Sprung()
	silent(t, "held", done)
	pgtest.Exec(t, other, insert, 2)
	trap.Conn().Thaw(faultconn.Replies)
	pgtest.Must(t, <-done)
}

func TestFreezeReplies(t *testing.T) {
	f := setup(t)
	conn := pgtest.Conn(t, f.dsn)
	f.proxy.HoldReplies()
	done := begin(t, conn, insert, pgx.QueryExecModeExec, 1)
	pgtest.WaitFor(t, "the row", func() bool { return f.rows(t) == 1 })
	silent(t, "replies frozen", done)
	f.proxy.ReleaseReplies()
	pgtest.Must(t, <-done)
}

// A request that the network held up reaches the server after its client has
// given up and gone.
func TestFrozenRequestOutlivesItsClient(t *testing.T) {
	f := setup(t)
	conn := pgtest.Conn(t, f.dsn)
	before := f.proxy.Counts()
	f.proxy.Conns()[0].Freeze(faultconn.Requests)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(ctx, insert, pgx.QueryExecModeExec, 1)
		done <- err
	}()
	pgtest.WaitFor(t, "the request", func() bool { return f.proxy.Counts().Since(before).Sync == 1 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	if n := f.rows(t); n != 0 {
		t.Fatalf("%d rows through a frozen link", n)
	}
	f.proxy.Conns()[0].Thaw(faultconn.Requests)
	pgtest.WaitFor(t, "the late row", func() bool { return f.rows(t) == 1 })
}

func TestDelayAddsLatency(t *testing.T) {
	f := setup(t)
	conn := pgtest.Conn(t, f.dsn)
	const each = 100 * time.Millisecond
	f.proxy.Delay(faultconn.Requests, each)
	f.proxy.Delay(faultconn.Replies, each)
	start := time.Now()
	pgtest.Exec(t, conn, "SELECT")
	if took := time.Since(start); took < 2*each || took > 20*each {
		t.Errorf("took %v, want a little over %v", took, 2*each)
	}
	f.proxy.Delay(faultconn.Replies, time.Hour)
	done := begin(t, conn, "SELECT")
	silent(t, "delayed", done)
	f.proxy.Delay(faultconn.Both, 0)
	pgtest.Must(t, <-done)
}

func TestCountsShowRoundTrips(t *testing.T) {
	f := setup(t)
	conn := pgtest.Conn(t, f.dsn)
	before := f.proxy.Counts()
	if before.Connections != 1 || before.Startups != 1 {
		t.Errorf("%d connections, %d startups, want 1 and 1", before.Connections, before.Startups)
	}
	batch := &pgx.Batch{}
	batch.Queue(insert, 1)
	batch.Queue(insert, 2)
	pgtest.Must(t, conn.SendBatch(t.Context(), batch).Close())
	described := f.proxy.Counts().Since(before)
	if described.RoundTrips() != 2 || described.Parse != 1 || described.Bind != 2 {
		t.Errorf("first batch: %+v", described)
	}

	before = f.proxy.Counts()
	pgtest.Must(t, conn.SendBatch(t.Context(), batch).Close())
	pgtest.Exec(t, conn, "SELECT")
	again := f.proxy.Counts().Since(before)
	if again.Sync != 1 || again.Query != 1 || again.RoundTrips() != 2 || again.Seen(faultconn.Replies, 'Z') != 2 {
		t.Errorf("second batch and a query: %+v", again)
	}
}

func TestEndings(t *testing.T) {
	for name, end := range map[string]func(*faultconn.Proxy){
		"cut":   (*faultconn.Proxy).Cut,
		"reset": (*faultconn.Proxy).Reset,
		"half":  func(p *faultconn.Proxy) { p.Conns()[0].HalfClose(faultconn.Replies) },
		"close": (*faultconn.Proxy).Close,
	} {
		t.Run(name, func(t *testing.T) {
			f := setup(t)
			conn := pgtest.Conn(t, pgtest.With(f.dsn, "application_name", "ending"))
			end(f.proxy)
			_, err := conn.Exec(t.Context(), "SELECT")
			if err == nil {
				t.Fatal("the connection still answers")
			}
			pgtest.WaitFor(t, "the session to end", func() bool {
				return pgtest.One[int64](t, f.direct, `SELECT count(*) FROM pg_stat_activity
					WHERE application_name = 'ending' AND datname = current_database()`) == 0
			})
		})
	}
}

func TestRefuse(t *testing.T) {
	f := setup(t)
	f.proxy.Refuse(true)
	if conn, err := pgx.Connect(t.Context(), f.dsn); err == nil {
		conn.Close(t.Context())
		t.Fatal("connected")
	}
	if c := f.proxy.Counts(); c.Refused == 0 || c.Connections != 0 {
		t.Errorf("counts %+v", c)
	}
	f.proxy.Refuse(false)
	pgtest.Exec(t, f.dsn, "SELECT")
}

func TestUpstreamDown(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	pgtest.Must(t, err)
	l.Close()
	proxy := faultconn.New(t, l.Addr().String())
	c, err := net.Dial("tcp", proxy.Addr())
	if err != nil {
		return // reset already
	}
	defer c.Close()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("something answered")
	}
}

// A server that answers a TLS request is relayed blindly from then on.
func TestTLSIsOpaque(t *testing.T) {
	t.Parallel()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	pgtest.Must(t, err)
	defer server.Close()
	served := make(chan error, 1)
	go func() {
		conn, err := server.Accept()
		if err != nil {
			served <- err
			return
		}
		defer conn.Close()
		request := make([]byte, 8)
		_, err = io.ReadFull(conn, request)
		if err == nil {
			_, err = conn.Write([]byte{'S'})
		}
		if err == nil {
			_, err = io.Copy(conn, conn)
		}
		served <- err
	}()

	proxy := faultconn.New(t, server.Addr().String())
	client, err := net.Dial("tcp", proxy.Addr())
	pgtest.Must(t, err)
	defer client.Close()
	_, err = client.Write([]byte{0, 0, 0, 8, 4, 210, 22, 47})
	pgtest.Must(t, err)
	answer := make([]byte, 1)
	_, err = io.ReadFull(client, answer)
	pgtest.Must(t, err)
	const noise = "\x16\x03\x01 no message at all \xff\xff\xff\xff\xff"
	_, err = io.WriteString(client, noise)
	pgtest.Must(t, err)
	pgtest.Must(t, client.(*net.TCPConn).CloseWrite())
	echo, err := io.ReadAll(client)
	pgtest.Must(t, err)
	if string(answer) != "S" || string(echo) != noise {
		t.Errorf("answer %q, echo %q", answer, echo)
	}
	pgtest.Must(t, <-served)
	if n := proxy.Counts().Seen(faultconn.Requests, faultconn.TLSRequest); n != 1 {
		t.Errorf("%d TLS requests seen, want 1", n)
	}
}
