package pgdb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pgmutex/pgmutex/internal/faultconn"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// relay starts a proxy before a new database, which dsn goes through and direct
// does not.
func relay(t testing.TB) (p *faultconn.Proxy, dsn, direct string) {
	t.Helper()
	p = faultconn.New(t, pgtest.Shared(t).Addr())
	direct = fresh(t)
	return p, p.DSN(direct), direct
}

// impatient makes a call that ends before there is a connection, and checks what
// its caller is told.
func impatient(t testing.TB, db *DB, within time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	began := time.Now()
	err := db.Run(ctx, Keep, st("SELECT 1"), nil, nil)
	if took := time.Since(began); took > within+5*time.Second {
		t.Errorf("a caller with %v waited for %v", within, took)
	}
	wantClass(t, err, NotSent)
	wantIs(t, err, context.DeadlineExceeded)
	wantText(t, err.Error(), "test: cannot connect to ", `as "`)
}

// A connection that takes longer than any caller has is made all the same, and in
// one attempt. A host before it that says nothing costs a few more.
func TestConnectionOutlivesItsCallers(t *testing.T) {
	for name, before := range map[string]string{"only host": "", "second host": silentListener(t) + ","} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, dsn, direct := relay(t)
			dsn = strings.Replace(dsn, p.Addr(), before+p.Addr(), 1)
			db := open(t, dsn, Options{})
			p.Delay(faultconn.Both, 150*time.Millisecond) // two round trips: 0.6 s
			pgtest.WaitFor(t, "the introduction", func() bool {
				impatient(t, db, 200*time.Millisecond)
				return p.Counts().Parse > 0
			})
			p.Delay(faultconn.Both, 0)
			pid(t, db, Keep)
			if n := p.Counts().Startups; before == "" && n != 1 {
				t.Errorf("%d connections were begun, want 1", n)
			}
			if n := pgtest.One[int](t, direct, "SELECT count(*)::int FROM pg_stat_activity WHERE application_name LIKE 'pgmutex%' AND datname = current_database()"); n != 1 {
				t.Errorf("%d sessions, want 1", n)
			}
		})
	}
}

// However little time the caller had for whom hosts were asked: one that says
// nothing costs those who come later no more than it would have cost them alone.
func TestSecondHostAfterAHurry(t *testing.T) {
	p, dsn, _ := relay(t)
	db := open(t, strings.Replace(dsn, p.Addr(), silentListener(t)+","+p.Addr(), 1), Options{})
	p.Delay(faultconn.Both, 30*time.Millisecond)
	impatient(t, db, 20*time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
	defer cancel()
	_, err := try[int](ctx, db, Keep, "SELECT 1")
	pgtest.Must(t, err)
}

// What is made for nobody is closed as what nobody uses.
func TestUnwantedConnectionIsClosed(t *testing.T) {
	p, dsn, direct := relay(t)
	var made atomic.Int32
	db := open(t, dsn, Options{Application: "unwanted", OnConnect: func(context.Context, Querier) (any, error) {
		made.Add(1)
		return nil, nil
	}})
	db.idle = 20 * time.Millisecond
	p.HoldReplies()
	impatient(t, db, 20*time.Millisecond)
	p.ReleaseReplies()
	pgtest.WaitFor(t, "the connection", func() bool { return made.Load() == 1 })
	gone(t, direct, "pgmutex unwanted")
	pid(t, db, Keep)
	if n := made.Load(); n != 2 {
		t.Errorf("%d connections, want a second one", n)
	}
}

// Close ends an attempt that nobody waits for at once, however far it has come.
func TestCloseEndsAnOpening(t *testing.T) {
	for name, match := range map[string]faultconn.Match{
		"start":        {From: faultconn.Replies, Type: 'R'},
		"introduction": {From: faultconn.Requests, Type: 'P'},
		"answer":       {From: faultconn.Replies, Type: 'D'},
	} {
		t.Run(name, func(t *testing.T) {
			p, dsn, direct := relay(t)
			trap := p.Trap(match, faultconn.Hold)
			db := open(t, dsn, Options{Application: "closing"})
			impatient(t, db, 50*time.Millisecond)
			<-trap.Sprung()
			closeSoon(t, db)
			trap.Conn().Thaw(faultconn.Both)
			gone(t, direct, "pgmutex closing")
		})
	}
	for _, made := range []bool{false, true} {
		t.Run(fmt.Sprint("made ", made), func(t *testing.T) {
			dsn := fresh(t)
			hooked, left := make(chan struct{}), make(chan struct{})
			db := open(t, dsn, Options{Application: "closing", OnConnect: func(ctx context.Context, _ Querier) (any, error) {
				close(hooked)
				<-left
				if made {
					return nil, ctx.Err()
				}
				<-ctx.Done()
				return nil, ctx.Err()
			}})
			leave(t, db, hooked)
			close(left)
			if made {
				<-db.lanes[Keep].opening.done
			}
			closeSoon(t, db)
			gone(t, dsn, "pgmutex closing")
		})
	}
}

// closeSoon closes a DB that nobody uses.
func closeSoon(t testing.TB, db *DB) {
	t.Helper()
	began := time.Now()
	pgtest.Must(t, db.Close(t.Context()))
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("Close took %v", took)
	}
	noGoroutines(t)
}

// leave makes a call that ends when the attempt has come to a point.
func leave(t testing.TB, db *DB, point <-chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := call(ctx, db)
	<-point
	cancel()
	err := <-failed
	wantClass(t, err, NotSent)
	wantIs(t, err, context.Canceled)
}

func call(ctx context.Context, db *DB) <-chan error {
	failed := make(chan error, 1)
	go func() { failed <- db.Run(ctx, Keep, st("SELECT 1"), nil, nil) }()
	return failed
}

// hook is a BeforeConnect that says when it is called and waits for what it has to
// return.
type hook struct {
	called chan context.Context
	result chan error
}

func hooked(t testing.TB, dsn string) (*DB, *hook) {
	t.Helper()
	h := &hook{make(chan context.Context), make(chan error)}
	pool := newPool(t, dsn, func(c *pgxpool.Config) {
		c.BeforeConnect = func(ctx context.Context, _ *pgx.ConnConfig) error {
			h.called <- ctx
			select {
			case err := <-h.result:
				return err
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	})
	return open(t, pool, Options{}), h
}

type key struct{}

// A hook has what its first caller's context carries, and not its end; who waits
// when it fails is told, who comes later is not.
func TestOpeningFails(t *testing.T) {
	db, h := hooked(t, fresh(t))
	first, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "value"), time.Hour)
	defer cancel()
	failed := call(first, db)
	ctx := <-h.called
	if ctx.Value(key{}) != "value" {
		t.Error("the values of the caller's context are not there")
	}
	cancel()
	wantIs(t, <-failed, context.Canceled)
	if ctx.Err() != nil {
		t.Error("the attempt has ended with its caller")
	}

	// Somebody else waits for it.
	failed = call(t.Context(), db)
	pgtest.WaitFor(t, "the turn", func() bool { return len(db.lanes[Keep].turn) == 0 })
	stop := errors.New("stop")
	h.result <- stop
	var err error
	select {
	case err = <-failed:
	case <-h.called: // had the turn and came too late; now it is the one who waits
		h.result <- stop
		err = <-failed
	}
	wantIs(t, err, stop)
	wantClass(t, err, NotSent)
	wantText(t, err.Error(), "test: ")

	// Nobody waits for it.
	second, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed = call(second, db)
	<-h.called
	cancel()
	wantIs(t, <-failed, context.Canceled)
	o := db.lanes[Keep].opening
	h.result <- stop
	<-o.done
	failed = call(t.Context(), db)
	<-h.called
	h.result <- nil
	pgtest.Must(t, <-failed)
}

// An attempt that is left alone has a limit. Who waits for it at that moment, with
// more time, has one of his own instead.
func TestOpeningHasALimit(t *testing.T) {
	db, h := hooked(t, fresh(t))
	alone, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := call(alone, db)
	ctx := <-h.called
	o := db.lanes[Keep].opening
	o.began = o.began.Add(-openLimit) // nobody looks at it before the caller leaves
	cancel()
	wantIs(t, <-failed, context.Canceled)
	<-ctx.Done()
	<-o.done

	alone, cancel = context.WithCancel(t.Context())
	defer cancel()
	failed = call(alone, db)
	<-h.called
	cancel()
	wantIs(t, <-failed, context.Canceled)
	failed = call(t.Context(), db)
	pgtest.WaitFor(t, "the turn", func() bool { return len(db.lanes[Keep].turn) == 0 })
	db.lanes[Keep].opening.limit.Reset(0)
	<-h.called
	h.result <- nil
	pgtest.Must(t, <-failed)
}

// A host that swallows packets is asked anew by those who come later.
func TestDeafHostIsAskedAnew(t *testing.T) {
	dialed := make(chan struct{})
	var asked atomic.Int32
	pool := newPool(t, fresh(t), func(c *pgxpool.Config) {
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if asked.Add(1) == 1 {
				close(dialed)
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return dial(ctx, network, addr)
		}
	})
	db := open(t, pool, Options{})
	leave(t, db, dialed)
	o := db.lanes[Keep].opening
	if o.deaf() {
		t.Error("given up after a moment")
	}
	o.began = o.began.Add(-deafAfter)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // less than the attempt would last
	defer cancel()
	_, err := try[int](ctx, db, Keep, "SELECT 1")
	pgtest.Must(t, err)
	if n := asked.Load(); n != 2 {
		t.Errorf("asked %d times, want 2", n)
	}
}

// From a *sql.DB nothing is borrowed for nobody.
func TestNothingIsBorrowedForNobody(t *testing.T) {
	p, dsn, _ := relay(t)
	pool := sqlDB(t, dsn)
	db := open(t, pool, Options{})
	p.HoldReplies()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := db.Run(ctx, Keep, st("SELECT 1"), nil, nil)
	wantClass(t, err, NotSent)
	wantIs(t, err, context.DeadlineExceeded)
	if db.lanes[Keep].opening != nil {
		t.Error("the attempt goes on")
	}
	p.ReleaseReplies()
	pgtest.WaitFor(t, "the pool to have its connections", func() bool { return pool.Stats().InUse == 0 })
	pid(t, db, Keep)
}
