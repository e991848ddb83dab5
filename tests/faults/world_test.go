package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/internal/faultconn"
	"github.com/pgmutex/pgmutex/internal/pgtest"
	"github.com/pgmutex/pgmutex/lease"
)

func TestMain(m *testing.M) {
	if childMain() {
		return
	}
	pgtest.Main(m)
}

// The times of all tests here, a four-hundredth of the real ones: the least that
// the engine allows would be a second.
const (
	stale     = 1500 * time.Millisecond
	fence     = stale / 3 * 2
	heartbeat = 125 * time.Millisecond
	// slack is what a busy machine may add to a time that is asserted.
	slack = time.Second
)

// A world is a database with the lock tables, the counter, and the history of
// what its clients do.
type world struct {
	t       testing.TB
	server  *pgtest.Server
	dsn     string
	history *history

	sessions bool          // of the advisory engine, see advisory_test.go
	allowed  time.Duration // of overlap, where an engine promises a bound alone
	crowd    bool          // too many at once for porcupine
	most     int64         // bytes that the lock table may have, 8 MB if zero

	addr string // of what stands between clients and the server, if anything does

	mu      sync.Mutex
	clients []*client
	told    []string // violations that were seen at once
}

const counterTables = `
CREATE TABLE fault_counter (name text PRIMARY KEY, n bigint NOT NULL);
CREATE TABLE fault_log (id bigserial PRIMARY KEY, name text NOT NULL, n bigint NOT NULL, token bigint NOT NULL);`

// newWorld makes a database on the shared server, or on s.
func newWorld(t testing.TB, s *pgtest.Server) *world {
	t.Helper()
	if s == nil {
		s = pgtest.Shared(t)
	}
	w := &world{t: t, server: s, dsn: s.Database(t), history: newHistory(t)}
	pgtest.Must(t, lease.Migrate(t.Context(), w.dsn, nil))
	pgtest.Exec(t, w.dsn, counterTables)
	return w
}

// violation reports what must not be; it may be called on any goroutine.
func (w *world) violation(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = append(w.told, fmt.Sprintf(format, args...))
}

// A client is one pgmutex client behind a relay of its own, and the pool of the
// application that it belongs to, which goes to the server directly.
type client struct {
	*pgmutex.Client
	w     *world
	name  string
	proxy *faultconn.Proxy
	app   *pgxpool.Pool
}

func (w *world) client(name string, change ...func(*pgmutex.Options)) *client {
	w.t.Helper()
	c := &client{w: w, name: name, proxy: faultconn.New(w.t, cmp.Or(w.addr, w.server.Addr()))}
	opts := &pgmutex.Options{
		HolderID: name, StaleAfter: stale, Heartbeat: heartbeat, ReleaseTimeout: 2 * time.Second,
		Hooks: []pgmutex.Hooks{{
			TakenOver: func(_ context.Context, e pgmutex.Event) {
				w.history.add(call{Op: "takeover", Client: name, Name: e.Info.Name, Start: now(), Token: e.Info.Token})
			},
			Lost: func(_ context.Context, e pgmutex.Event) {
				w.history.add(call{Op: "lost", Client: name, Name: e.Info.Name, Start: now(), Token: e.Info.Token, Outcome: string(e.Reason)})
			},
		}},
	}
	if w.sessions {
		opts.StaleAfter, opts.Heartbeat = session, session/12
	}
	for _, f := range change {
		f(opts)
	}
	var err error
	c.Client, err = w.open(w.t.Context(), c.proxy.DSN(w.dsn), opts)
	pgtest.Must(w.t, err)
	w.t.Cleanup(c.shut)
	c.app, err = pgxpool.New(w.t.Context(), pgtest.With(w.dsn, "application_name", "faults-app"))
	pgtest.Must(w.t, err)
	w.t.Cleanup(c.app.Close)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clients = append(w.clients, c)
	return c
}

// heal ends every fault on the client's relay.
func (c *client) heal() {
	c.proxy.Refuse(false)
	c.proxy.Thaw(faultconn.Both)
	c.proxy.Delay(faultconn.Both, 0)
	c.proxy.Chunk(faultconn.Both, 0)
}

func (c *client) shut() {
	c.heal()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := c.Close(ctx); err != nil {
		c.w.t.Errorf("close %s: %v", c.name, err)
	}
}

// A holding is a hold under observation.
type holding struct {
	*pgmutex.Hold
	c     *client
	began time.Duration

	mu    sync.Mutex
	until time.Duration // the last time Held was seen to be true
	over  time.Duration // the first time it was seen to be false
	stop  chan struct{}
	done  chan struct{}
}

// take acquires and writes down what came of it.
func (c *client) take(ctx context.Context, name string, wait bool) (*holding, error) {
	acquire := c.TryAcquire
	if wait {
		acquire = c.Acquire
	}
	rec := call{Op: "acquire", Client: c.name, Name: name, Start: now()}
	hold, err := acquire(ctx, name)
	rec.End = now()
	switch {
	case err == nil:
		rec.Outcome, rec.Token = "granted", hold.Token()
	case errors.Is(err, pgmutex.ErrUnknown):
		rec.Outcome = "unknown"
	case errors.Is(err, pgmutex.ErrHeld):
		rec.Outcome = "held"
	case ctx.Err() != nil:
		rec.Outcome = "ended"
	default:
		rec.Outcome = "failed"
	}
	if err != nil {
		rec.Err = err.Error()
		c.w.history.add(rec)
		return nil, err
	}
	c.w.history.add(rec)
	if hold == nil {
		c.w.violation("%s: acquire %q returned neither a hold nor an error", c.name, name)
	}
	h := &holding{Hold: hold, c: c, began: rec.End, until: rec.End, stop: make(chan struct{}), done: make(chan struct{})}
	go h.watch()
	return h, nil
}

// must takes a lock that has to be free.
func (c *client) must(name string) *holding {
	c.w.t.Helper()
	h, err := c.take(c.w.t.Context(), name, true)
	pgtest.Must(c.w.t, err)
	return h
}

// warm makes the connection, and prepares on it what a lock takes: each kind of
// attempt, one at a name that is held, and the release.
func (c *client) warm() {
	c.w.t.Helper()
	ctx := c.w.t.Context()
	for _, wait := range []bool{true, false} {
		h, err := c.take(ctx, "warm", wait)
		pgtest.Must(c.w.t, err)
		if _, err := c.take(ctx, "warm", false); err == nil {
			c.w.t.Error("two holders")
		}
		pgtest.Must(c.w.t, h.end(ctx))
	}
}

// look asks Held and keeps the time before the question where it is true.
func (h *holding) look() bool {
	at := now()
	held := h.Held()
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case held && h.over != 0 && at > h.over: // two may look at once, and be told in the other order
		h.c.w.violation("%s: %q token %d is held again", h.c.name, h.Name(), h.Token())
	case held:
		h.until = max(h.until, at)
	case h.over == 0:
		h.over = now()
	}
	return held
}

// watch looks until the hold has ended or is about to be released.
func (h *holding) watch() {
	defer close(h.done)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for h.look() {
		select {
		case <-tick.C:
		case <-h.stop:
			return
		}
	}
}

// end releases the hold and writes down for how long it was believed in.
func (h *holding) end(ctx context.Context) error {
	h.look()
	close(h.stop)
	<-h.done
	rec := call{Op: "release", Client: h.c.name, Name: h.Name(), Token: h.Token(), Start: now()}
	err := h.Release(ctx)
	rec.End = now()
	switch {
	case err == nil:
		rec.Outcome = "ok"
	case errors.Is(err, pgmutex.ErrLost):
		rec.Outcome = "lost"
	default:
		rec.Outcome = "failed"
	}
	if err != nil {
		rec.Err = err.Error()
	}
	if h.Held() {
		h.c.w.violation("%s: %q token %d is held after its release", h.c.name, h.Name(), h.Token())
	}
	h.mu.Lock()
	over := h.over
	if over == 0 {
		over = rec.End
	}
	belief := call{Op: "belief", Client: h.c.name, Name: h.Name(), Token: h.Token(), Start: h.began, End: h.until, Over: over}
	h.mu.Unlock()
	h.c.w.history.add(belief)
	h.c.w.history.add(rec)
	return err
}

// lostWithin waits for the hold's context to end by a loss.
func (h *holding) lostWithin(d time.Duration) {
	t := h.c.w.t
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-h.Context().Done():
	case <-timer.C:
		t.Fatalf("%q is not lost after %v", h.Name(), d)
	}
	if cause := context.Cause(h.Context()); !errors.Is(cause, pgmutex.ErrLost) {
		t.Errorf("%q ended by %v", h.Name(), cause)
	}
	if h.Held() {
		t.Errorf("%q is held after its context ended", h.Name())
	}
}

// write is an increment of the lock's counter that is only right when nobody
// else makes one meanwhile. The transaction stays open for as long as pause
// takes. A hold that is over guards by the statement that the manual shows.
func (h *holding) write(ctx context.Context, pause func()) string {
	rec := call{Op: "write", Client: h.c.name, Name: h.Name(), Token: h.Token(), Start: now()}
	var err error
	rec.Outcome, err = h.increment(ctx, pause)
	rec.End = now()
	if err != nil {
		rec.Err = err.Error()
	}
	h.c.w.history.add(rec)
	return rec.Outcome
}

const documentedGuard = `SELECT 1 FROM mutex_lock WHERE lock_name = $1 AND instance_id = $2 FOR KEY SHARE`

func (h *holding) increment(ctx context.Context, pause func()) (string, error) {
	if h.c.w.sessions {
		return h.fenced(ctx, pause)
	}
	tx, err := h.c.app.Begin(ctx)
	if err != nil {
		return "failed", err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	exec := func(ctx context.Context, sql string, args ...any) (int64, error) {
		tag, err := tx.Exec(ctx, sql, args...)
		return tag.RowsAffected(), err
	}
	if h.Held() {
		err = h.Guard(ctx, exec)
		if errors.Is(err, pgmutex.ErrNotHeld) && h.look() {
			// Nobody forces anything here, so this hold cannot have lost its row.
			h.c.w.violation("%s: %q token %d is held, and the store says it is not: %v", h.c.name, h.Name(), h.Token(), err)
		}
	} else {
		var rows int64
		rows, err = exec(ctx, documentedGuard, h.Name(), h.Info().Term)
		if err == nil && rows == 0 {
			err = pgmutex.ErrNotHeld
		}
	}
	if errors.Is(err, pgmutex.ErrNotHeld) {
		return "refused", err
	}
	if err != nil {
		return "failed", err
	}
	var n int64
	if err := tx.QueryRow(ctx, `SELECT n FROM fault_counter WHERE name = $1`, h.Name()).Scan(&n); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return "failed", err
	}
	if pause != nil {
		pause()
	}
	if _, err := tx.Exec(ctx, `INSERT INTO fault_counter AS c VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET n = $2`, h.Name(), n+1); err != nil {
		return "failed", err
	}
	if _, err := tx.Exec(ctx, `INSERT INTO fault_log (name, n, token) VALUES ($1, $2, $3)`, h.Name(), n+1, h.Token()); err != nil {
		return "failed", err
	}
	return committed(tx.Commit(ctx))
}

// committed judges the answer to a COMMIT.
func committed(err error) (string, error) {
	var refused *pgconn.PgError
	switch {
	case err == nil:
		return "committed", nil
	case errors.As(err, &refused) && refused.Severity == "ERROR", errors.Is(err, pgx.ErrTxCommitRollback):
		return "failed", err
	}
	return "unknown", err
}
