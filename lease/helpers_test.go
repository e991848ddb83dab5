package lease

import (
	"context"
	"crypto/rand"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// database makes a database with the tables in it.
func database(t testing.TB, opts *Options) string {
	t.Helper()
	dsn := pgtest.Shared(t).Database(t)
	pgtest.Must(t, Migrate(t.Context(), dsn, opts))
	return dsn
}

// sink notes what an engine reports.
type sink struct {
	mu    sync.Mutex
	freed []string
	news  chan string
}

func newSink() *sink { return &sink{news: make(chan string, 10000)} }

func (s *sink) Lost(engine.Term, engine.LossReason, string, error) {}

func (s *sink) Freed(name string) {
	s.mu.Lock()
	s.freed = append(s.freed, name)
	s.mu.Unlock()
	select {
	case s.news <- name:
	default:
	}
}

// await waits until name has been reported.
func (s *sink) await(t testing.TB, name string) {
	t.Helper()
	bound := time.After(30 * time.Second)
	for {
		select {
		case got := <-s.news:
			if got == name {
				return
			}
		case <-bound:
			t.Fatalf("Freed(%q) was not called", name)
		}
	}
}

// client is an engine as a test uses it.
type client struct {
	*store
	t    testing.TB
	sink *sink
}

func start(t testing.TB, dsn string, opts *Options) *client {
	t.Helper()
	eng, err := New(dsn, opts)
	pgtest.Must(t, err)
	return started(t, eng)
}

func started(t testing.TB, eng engine.Engine) *client {
	t.Helper()
	c := &client{store: eng.(*store), t: t, sink: newSink()}
	pgtest.Must(t, eng.Start(t.Context(), c.sink))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := eng.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

func newID() string { return "test~" + lower(rand.Text()[:16]) }

// request is a one-shot request with short times.
func request(name string) engine.Request {
	return engine.Request{
		Term:       engine.Term{Name: name, ID: newID(), StaleAfter: time.Minute},
		Heartbeat:  time.Second,
		AlertAfter: 3 * time.Second,
		Judge:      true,
	}
}

func waiting(name string) engine.Request {
	r := request(name)
	r.Wait = true
	return r
}

func (c *client) try(r engine.Request) engine.Answer {
	c.t.Helper()
	return c.Acquire(c.t.Context(), []engine.Request{r})[0]
}

// take acquires and fails the test when that is not possible.
func (c *client) take(r engine.Request) engine.Term {
	c.t.Helper()
	a := c.try(r)
	if a.Outcome != engine.Granted {
		c.t.Fatalf("acquire %q: outcome %d, holder %+v, error %v", r.Term.Name, a.Outcome, a.Holder, a.Err)
	}
	term := r.Term
	term.Token = a.Token
	return term
}

// busy makes an attempt that has to find somebody else.
func (c *client) busy(r engine.Request) engine.Answer {
	c.t.Helper()
	a := c.try(r)
	if a.Outcome != engine.Busy {
		c.t.Fatalf("acquire %q: outcome %d instead of busy, error %v", r.Term.Name, a.Outcome, a.Err)
	}
	return a
}

func (c *client) drop(term engine.Term) {
	c.t.Helper()
	if r := c.release(term); r.Outcome != engine.Removed {
		c.t.Fatalf("release %q: outcome %d, error %v", term.Name, r.Outcome, r.Err)
	}
}

func (c *client) release(term engine.Term) engine.Removal {
	c.t.Helper()
	return c.Release(c.t.Context(), []engine.Term{term})[0]
}

func (c *client) renew(term engine.Term) engine.Standing {
	c.t.Helper()
	return c.Renew(c.t.Context(), []engine.Term{term})[0]
}

// age makes the row of name as old as d.
func age(t testing.TB, on any, name string, d time.Duration) {
	t.Helper()
	n := pgtest.Exec(t, on, `UPDATE mutex_lock SET last_heartbeat = clock_timestamp() - $2::bigint * interval '1 microsecond'
		WHERE lock_name = $1`, name, d.Microseconds())
	if n != 1 {
		t.Fatalf("%q has %d rows", name, n)
	}
}

// execOn is engine.Exec on a pgx transaction.
func execOn(tx pgx.Tx) engine.Exec {
	return func(ctx context.Context, query string, args ...any) (int64, error) {
		tag, err := tx.Exec(ctx, query, args...)
		return tag.RowsAffected(), err
	}
}

func begin(t testing.TB, dsn string) pgx.Tx {
	t.Helper()
	tx, err := pgtest.Conn(t, dsn).Begin(t.Context())
	pgtest.Must(t, err)
	return tx
}
