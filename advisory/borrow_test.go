package advisory

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/pgdb"
	"github.com/pgmutex/pgmutex/internal/pgtest"
	"github.com/pgmutex/pgmutex/lease"
)

// Tapped is a pool that shows what its connections read to tap, which may change it.
func Tapped(t testing.TB, dsn string, tap func(read []byte)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	pgtest.Must(t, err)
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return tappedConn{c, tap}, nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	pgtest.Must(t, err)
	t.Cleanup(pool.Close)
	return pool
}

type tappedConn struct {
	net.Conn
	tap func([]byte)
}

func (c tappedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.tap(b[:n])
	return n, err
}

// Deny makes the answer of an unlock, a row with the one digit 1, one that says that
// there was nothing to unlock, and reports whether there was one.
func Deny(read []byte) bool {
	yes := []byte("D\x00\x00\x00\x0b\x00\x01\x00\x00\x00\x011")
	no := append(bytes.Clone(yes[:len(yes)-1]), '0')
	return copy(read, bytes.ReplaceAll(read, yes, no)) > 0 && bytes.Contains(read, no)
}

// started is an engine that is closed with the test.
func started[S pgdb.Source](t testing.TB, source S, own *Options, sink engine.Sink) *store {
	t.Helper()
	eng, err := New(source, own)
	pgtest.Must(t, err)
	pgtest.Must(t, eng.Start(t.Context(), sink))
	t.Cleanup(func() { _ = eng.Close(context.Background()) })
	return eng.(*store)
}

func termOf(name string) engine.Term {
	return engine.Term{Name: name, ID: "a~" + name, StaleAfter: time.Minute}
}

func attempt(ctx context.Context, e *store, r engine.Request) engine.Answer {
	return e.Acquire(ctx, []engine.Request{r})[0]
}

// given takes a name and fails the test where that is not possible.
func given(t testing.TB, e *store, name string) engine.Term {
	t.Helper()
	term := termOf(name)
	if a := attempt(t.Context(), e, engine.Request{Term: term}); a.Outcome != engine.Granted {
		t.Fatalf("%s: %+v", name, a)
	}
	return term
}

// borrows reports whether the connection was borrowed for what do does, which takes a
// moment in which serve has nothing to do and does not read yet.
func borrows(s *session, do func()) bool {
	loans := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.loans
	}
	before := loans()
	do()
	return loans() > before
}

// A try that took the lock and then failed leaves nothing behind, and if its caller's
// context ends in the moment in which the error comes.
func TestATryThatFailsAsItsCallerLeavesIsUndone(t *testing.T) {
	dsn := pgtest.Shared(t).Database(t)
	pgtest.Must(t, lease.Migrate(t.Context(), dsn, nil))
	var leave atomic.Pointer[context.CancelFunc]
	var failed atomic.Bool
	pool := Tapped(t, dsn, func(read []byte) {
		if bytes.Contains(read, []byte("2200H")) {
			failed.Store(true)
		}
		if bytes.HasSuffix(read, []byte("Z\x00\x00\x00\x05I")) && failed.Swap(false) {
			(*leave.Load())() // all of the answer is here
		}
	})
	e := started(t, pool, &Options{Table: "mutex_lock"}, deaf{})
	keep := []engine.Term{given(t, e, "keep")}
	e.Release(t.Context(), []engine.Term{given(t, e, "x")}) // all statements are prepared
	pgtest.Exec(t, dsn, "SELECT setval('mutex_lock_token', (SELECT seqmax FROM pg_sequence WHERE seqrelid = 'mutex_lock_token'::regclass))")
	pgtest.WaitFor(t, "a try on a borrowed connection", func() bool {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		leave.Store(&cancel)
		e.Renew(t.Context(), keep)
		borrowed := borrows(e.current(), func() {
			if a := attempt(ctx, e, engine.Request{Term: termOf("x")}); a.Outcome == engine.Granted {
				t.Fatalf("%+v", a)
			}
		})
		// What there is to be undone comes before this.
		if s := e.Renew(t.Context(), keep)[0]; s.Health != engine.Held {
			t.Fatalf("the other hold: %+v", s)
		}
		if !pgtest.One[bool](t, dsn, "SELECT pg_try_advisory_lock($1)", engine.NameID("x")) {
			t.Fatal("a lock is left that nobody knows of")
		}
		return borrowed && ctx.Err() != nil
	})
}

// An unlock that the server knows nothing of ends the session, and if its caller's
// context ends in the moment in which that answer comes.
func TestAnUnlockThatIsNoProofEndsTheSessionOfACallerWhoLeaves(t *testing.T) {
	var leave atomic.Pointer[context.CancelFunc]
	pool := Tapped(t, pgtest.Shared(t).Database(t), func(read []byte) {
		if cancel := leave.Load(); cancel != nil && Deny(read) {
			(*cancel)()
		}
	})
	e := started(t, pool, nil, deaf{})
	round := 0
	pgtest.WaitFor(t, "an unlock on a borrowed connection", func() bool {
		round++
		x, y := given(t, e, fmt.Sprint("x", round)), given(t, e, fmt.Sprint("y", round))
		e.Release(t.Context(), []engine.Term{given(t, e, "z")}) // all statements are prepared
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		leave.Store(&cancel)
		borrowed := borrows(e.current(), func() { e.Release(ctx, []engine.Term{x}) })
		leave.Store(nil)
		if s := e.Renew(t.Context(), []engine.Term{y})[0]; s.Health != engine.Gone {
			t.Fatalf("the other hold: %+v", s)
		}
		return borrowed && ctx.Err() != nil
	})
}

// told notes that something was said to be free.
type told struct {
	deaf
	freed chan string
}

func (s told) Freed(name string) {
	select {
	case s.freed <- name:
	default:
	}
}

// On a connection of a *sql.DB, a notification that comes with the answer to another
// statement is told with it: a client that is busy has no pause to find it in.
func TestANotificationIsToldWithTheAnswerThatItCameWith(t *testing.T) {
	dsn := pgtest.Shared(t).Database(t)
	config, err := pgx.ParseConfig(dsn)
	pgtest.Must(t, err)
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { _ = db.Close() })
	sink := told{freed: make(chan string, 1)}
	e := started(t, db, nil, sink)
	given(t, started(t, dsn, nil, deaf{}), "x")
	if a := attempt(t.Context(), e, engine.Request{Term: termOf("x"), Wait: true}); a.Outcome != engine.Busy || !a.Hinted {
		t.Fatalf("%+v", a)
	}
	s := e.current()
	var w *pgWire
	pgtest.WaitFor(t, "the connection to be lent", func() (ok bool) {
		e.Renew(t.Context(), nil)
		w, ok = s.borrow()
		return ok
	})
	defer s.repay(nil)
	for len(sink.freed) > 0 {
		<-sink.freed
	}
	// The server has it for the session when this returns.
	pgtest.Exec(t, dsn, "SELECT pg_notify($1, '')", channelOf(engine.NameID("x")))
	_, err = w.query(time.Now().Add(time.Minute), e.sql.ping)
	pgtest.Must(t, err)
	if len(sink.freed) == 0 {
		t.Error("it was kept back")
	}
}
