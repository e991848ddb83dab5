package pgdb

import (
	"context"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// silentListener accepts connections and says nothing on them.
func silentListener(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	pgtest.Must(t, err)
	var open sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	open.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
		}
	})
	t.Cleanup(func() {
		l.Close()
		open.Wait()
		for _, c := range conns {
			c.Close()
		}
	})
	return l.Addr().String()
}

// ours returns the stacks of goroutines of this package and of the driver,
// without those of tests.
func ours() (stacks []string) {
	buf := make([]byte, 1<<20)
	for s := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if (strings.Contains(s, "pgdb.") || strings.Contains(s, "pgconn.")) && !strings.Contains(s, "testing.tRunner") && !strings.Contains(s, "silentListener") {
			stacks = append(stacks, s)
		}
	}
	return stacks
}

// noGoroutines passes over those that have done their work and are about to end.
func noGoroutines(t testing.TB) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Log(strings.Join(ours(), "\n\n"))
		}
	}()
	pgtest.WaitFor(t, "goroutines to end", func() bool { return len(ours()) == 0 })
}

func TestClose(t *testing.T) {
	dsn := fresh(t)
	db := open(t, dsn, Options{Application: "closing"})
	pid(t, db, Work)
	pid(t, db, Keep)
	woken := make(chan struct{}, 10)
	_, err := db.Listen("c", func(string, bool) { woken <- struct{}{} })
	pgtest.Must(t, err)
	<-woken
	if n := len(pgtest.Backends(t, dsn, "pgmutex closing")); n != 3 {
		t.Errorf("%d sessions, want 3", n)
	}
	pgtest.Must(t, db.Close(t.Context()))
	noGoroutines(t)
	gone(t, dsn, "pgmutex closing")

	pgtest.Must(t, db.Close(t.Context()))
	err = db.Run(t.Context(), Work, st("SELECT 1"), nil, nil)
	wantClass(t, err, NotSent)
	wantIs(t, err, ErrClosed)
	wantIs(t, db.Check(t.Context()), ErrClosed)
	_, err = db.Listen("c", func(string, bool) {})
	wantIs(t, err, ErrClosed)
}

func TestCloseUnused(t *testing.T) {
	db, err := Open("postgres://nobody@nohost.invalid/none", Options{})
	pgtest.Must(t, err)
	pgtest.Must(t, db.Close(t.Context()))
}

// A statement under way is cut off when patience ends, those in the queue are
// refused at once.
func TestCloseCutsOff(t *testing.T) {
	dsn := fresh(t)
	db := open(t, dsn, Options{Application: "cut"})
	_, failed := busy(t, t.Context(), dsn, db, Work)
	queued := make(chan error, 1)
	go func() { queued <- db.Run(t.Context(), Work, st("SELECT 1"), nil, nil) }()

	ctx, cancel := context.WithCancel(t.Context())
	closed := make(chan error, 1)
	go func() { closed <- db.Close(ctx) }()
	err := <-queued
	wantClass(t, err, NotSent)
	wantIs(t, err, ErrClosed)
	cancel()
	wantIs(t, <-closed, context.Canceled)
	wantClass(t, <-failed, Unknown)
	noGoroutines(t)
}

// An attempt to connect ends with the handle.
func TestCloseWhileConnecting(t *testing.T) {
	db := open(t, "postgres://u@"+silentListener(t)+"/db?sslmode=disable", Options{})
	failed := make(chan error, 1)
	go func() { failed <- db.Check(t.Context()) }()
	pgtest.WaitFor(t, "the attempt", func() bool { return len(db.lanes[Work].turn) == 0 })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantIs(t, db.Close(ctx), context.Canceled)
	wantClass(t, <-failed, NotSent)
	noGoroutines(t)
}

// Connections that nobody uses are closed, and made again when they are needed.
func TestIdleConnectionsAreClosed(t *testing.T) {
	dsn := fresh(t)
	db := open(t, dsn, Options{Application: "idle"})
	db.idle = time.Millisecond
	for range 2 {
		pid(t, db, Work)
		pid(t, db, Keep)
		gone(t, dsn, "pgmutex idle")
	}
}

// Many callers at once share the two connections, each is served, and no
// session is left over after failures.
func TestManyCallers(t *testing.T) {
	dsn := fresh(t)
	db := open(t, dsn, Options{Application: "many"})
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			for n := range 10 {
				ctx, cancel := context.WithCancel(t.Context())
				if n%4 == 3 {
					cancel()
				}
				got, err := try[int](ctx, db, Lane(i%2), "SELECT $1::int", n)
				if err == nil && got != n || err != nil && n%4 != 3 {
					t.Errorf("got %d, %v; want %d", got, err, n)
				}
				cancel()
			}
		})
	}
	all.Wait()
	if n := len(pgtest.Backends(t, dsn, "pgmutex many")); n != 2 {
		t.Errorf("%d sessions, want 2", n)
	}
}
