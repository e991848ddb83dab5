//go:build interop

package interop

import (
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/advisory"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

//go:embed manager.py
var managerProgram string

// keys are those that the tests of the manager lock, each beside the others.
var keys = []string{"job", "täglich/日本語/🔒", "cutover:" + tenant}

// A manager is a Python process with one lock manager of eventsource-py, over
// asyncpg and SQLAlchemy.
type manager struct{ *peer }

func startManager(t testing.TB, dsn, holder string) manager {
	t.Helper()
	u, err := url.Parse(dsn)
	must(t, err)
	u.Scheme, u.RawQuery = "postgresql+asyncpg", "" // the query is libpq's
	return manager{startPython(t, managerProgram, holder, map[string]string{"url": u.String(), "holder": holder})}
}

// An info is what LockInfo says.
type info struct {
	Key        string    `json:"key"`
	ID         string    `json:"id"`
	Holder     string    `json:"holder"`
	AcquiredAt time.Time `json:"acquired_at"`
}

// try is try_acquire; nil is None.
func (m manager) try(key string) *info {
	m.t.Helper()
	return decode[*info](m.t, m.do("try_acquire", args{"key": key}))
}

func (m manager) take(key string) *info {
	m.t.Helper()
	got := m.try(key)
	if got == nil {
		m.t.Fatalf("%s did not get %q", m.id, key)
	}
	return got
}

// acquire starts acquire(key) without a timeout, which is a statement that blocks,
// and returns when that waits on the server.
func (m manager) acquire(key, dsn string) {
	m.t.Helper()
	m.ask("acquire", args{"key": key})
	pgtest.WaitFor(m.t, "Python to stand in the server's line", func() bool {
		return pgtest.One[int64](m.t, dsn, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
			AND wait_event_type = 'Lock' AND wait_event = 'advisory' AND query LIKE '%pg_advisory_lock(%'`) == 1
	})
	if !m.silent() {
		m.t.Fatal("Python's acquire has ended already")
	}
}

// openAdvisory makes a client of the advisory engine.
func openAdvisory(t testing.TB, dsn, label string, opts pgmutex.Options) goSide {
	t.Helper()
	eng, err := advisory.New(dsn, nil)
	must(t, err)
	return openOn(t, eng, label, opts)
}

// unlocked checks that no lock of the name is left, waiting ones included.
func unlocked(t testing.TB, dsn, name string) {
	t.Helper()
	n := pgtest.One[int64](t, dsn, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND ((classid::bigint << 32) | objid::bigint) = $1`, pgmutex.AdvisoryID(name))
	if n != 0 {
		t.Errorf("%d locks of %q are left", n, name)
	}
}

func TestGoHoldsAndTheManagerIsKeptOut(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Shared(t).Database(t)
	g, m := openAdvisory(t, dsn, "go-1", pgmutex.Options{}), startManager(t, dsn, "python-1")
	for _, key := range keys {
		h := g.take(t, key)
		if got := m.try(key); got != nil {
			t.Errorf("try_acquire(%q) gave %+v, which Go holds", key, got)
		}
		m.ask("acquire", args{"key": key, "timeout": 0.4, "retry_interval": 0.05})
		if r := m.answer(); r.Error != "LockAcquisitionError" || !strings.Contains(r.Text, "Timeout after 0.4s") {
			t.Errorf("acquire(%q, timeout=0.4) ended with %+v", key, r)
		}
		must(t, h.Release(t.Context()))
		got := m.take(key)
		if want := strconv.FormatInt(h.Info().ID, 10); got.Key != key || got.ID != want || got.Holder != "python-1" {
			t.Errorf("Python was granted %+v, want the id %s", got, want)
		}
		m.do("release", args{"key": key})
		unlocked(t, dsn, key)
	}
	g.take(t, "another")
	m.take("job") // other keys are other locks
}

func TestTheManagerHoldsAndGoIsKeptOut(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Shared(t).Database(t)
	g, m := openAdvisory(t, dsn, "go-1", pgmutex.Options{}), startManager(t, dsn, "python-1")
	for i, key := range keys {
		if i%2 == 0 {
			m.take(key)
		} else {
			m.do("acquire", args{"key": key})
		}
		_, err := g.TryAcquire(t.Context(), key)
		var held *pgmutex.HeldError
		if !errors.Is(err, pgmutex.ErrHeld) || !errors.As(err, &held) || held.Name != key || held.Details["backend_pid"] == "" {
			t.Errorf("Go tried %q: %#v (%v), want the session that holds it", key, held, err)
		}
		w := g.start(t.Context(), key, 400*time.Millisecond)
		happens(t, w.done, "the end of a limited wait")
		var failed *pgmutex.AcquireError
		if !errors.Is(w.err, pgmutex.ErrHeld) || !errors.As(w.err, &failed) || failed.Timeout != 400*time.Millisecond {
			t.Errorf("Go's wait for %q ended with %v", key, w.err)
		}
		if i%2 == 0 {
			m.do("release", args{"key": key})
		} else {
			m.do("leave", args{"key": key})
		}
		h := g.take(t, key)
		if !g.IsHeld(key) || decode[bool](t, m.do("is_held", args{"key": key})) {
			t.Errorf("the two do not agree on who holds %q", key)
		}
		must(t, h.Release(t.Context()))
		unlocked(t, dsn, key)
	}
}

// TestTheManagerWaitsInTheServer: its acquire without a timeout is one statement
// that blocks, and has the lock as soon as we let go.
func TestTheManagerWaitsInTheServer(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Shared(t).Database(t)
	g, m := openAdvisory(t, dsn, "go-1", pgmutex.Options{}), startManager(t, dsn, "python-1")
	for _, key := range keys {
		h := g.take(t, key)
		m.acquire(key, dsn)
		must(t, h.Heartbeat(t.Context())) // who waits does not disturb
		must(t, h.Release(t.Context()))
		m.clean(m.answer())
		if _, err := g.TryAcquire(t.Context(), key); !errors.Is(err, pgmutex.ErrHeld) {
			t.Errorf("Go tried %q, which Python was given: %v", key, err)
		}
		m.do("leave", args{"key": key})
		unlocked(t, dsn, key)
	}
}

// TestGoWaitsForTheManager: it notifies nobody, so Go finds out by polling.
func TestGoWaitsForTheManager(t *testing.T) {
	t.Parallel()
	const poll = 200 * time.Millisecond
	dsn := pgtest.Shared(t).Database(t)
	g, m := openAdvisory(t, dsn, "go-1", pgmutex.Options{PollInterval: poll}), startManager(t, dsn, "python-1")
	for _, key := range keys {
		m.do("acquire", args{"key": key})
		w := g.wait(t, key)
		if happened(w.done) {
			t.Fatalf("Go's wait is over before the release: %v", w.err)
		}
		released := time.Now()
		m.do("leave", args{"key": key})
		h := w.granted(t)
		if took := time.Since(released); took > poll+slack {
			t.Errorf("Go polls every %v and needed %v", poll, took)
		}
		if got := m.try(key); got != nil {
			t.Errorf("try_acquire(%q) gave %+v, which Go was given", key, got)
		}
		must(t, h.Release(t.Context()))
	}
}

// TestCrashFreesTheLockForTheOther: a dead process has no session, and its lock is
// free at once, on either side.
func TestCrashFreesTheLockForTheOther(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Shared(t).Database(t)
	g := openAdvisory(t, dsn, "go-1", pgmutex.Options{})
	dead := startManager(t, dsn, "python-1")
	dead.take("job")
	w := g.wait(t, "job")
	died := time.Now()
	dead.kill()
	h := w.granted(t)
	if took := time.Since(died); took > slack {
		t.Errorf("Go got the lock of a dead Python process after %v", took)
	}
	must(t, h.Release(t.Context()))

	cmd, stdout := startWorker(t, job{DSN: dsn, Name: "job", Label: "go-2", Stale: agreed, Advisory: true})
	if _, err := stdout.ReadString('\n'); err != nil {
		t.Fatalf("the Go holder failed: %v\n%s", err, cmd.Stderr)
	}
	m := startManager(t, dsn, "python-2")
	m.acquire("job", dsn)
	died = time.Now()
	must(t, cmd.Process.Kill())
	m.clean(m.answer())
	if took := time.Since(died); took > slack {
		t.Errorf("Python got the lock of a dead Go process after %v", took)
	}
}

// TestMigrationKeyIsOneLock: the key of a tenant's operation is one lock for both,
// and each operation another one.
func TestMigrationKeyIsOneLock(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Shared(t).Database(t)
	g, m := openAdvisory(t, dsn, "go-1", pgmutex.Options{}), startManager(t, dsn, "python-1")
	key := func(operation string) string {
		return decode[string](t, m.do("migration_key", args{"tenant": tenant, "operation": operation}))
	}
	id := tenantID(t)
	g.take(t, pgmutex.MigrationKey(id, "cutover"))
	if got := m.try(key("cutover")); got != nil {
		t.Errorf("Python was granted %+v, which Go holds", got)
	}
	m.take(key("migration"))
	if _, err := g.TryAcquire(t.Context(), pgmutex.MigrationKey(id, "")); !errors.Is(err, pgmutex.ErrHeld) {
		t.Errorf("Go tried what Python holds: %v", err)
	}
}

// TestManagersCount: 2 Go and 2 Python processes, one of which blocks and one polls,
// increment a number that none of them protects but by the lock.
func TestManagersCount(t *testing.T) {
	t.Parallel()
	const rounds = 30
	dsn := pgtest.Shared(t).Database(t)
	pgtest.Exec(t, dsn, "CREATE TABLE counter AS SELECT 0 AS n")
	var managers []manager
	for i, how := range []args{{}, {"timeout": bound.Seconds(), "retry_interval": 0.02}} {
		m := startManager(t, dsn, fmt.Sprintf("python-%d", i))
		how["key"], how["rounds"] = keys[1], rounds
		m.ask("count", how)
		managers = append(managers, m)
	}
	var workers []*exec.Cmd
	for i := range 2 {
		cmd, _ := startWorker(t, job{
			DSN: dsn, Name: keys[1], Label: fmt.Sprintf("go-%d", i), Stale: agreed, Rounds: rounds, Advisory: true,
		})
		workers = append(workers, cmd)
	}
	for _, cmd := range workers {
		ended := make(chan struct{})
		var err error
		go func() { err = cmd.Wait(); close(ended) }()
		happens(t, ended, "a Go process to have counted")
		if err != nil {
			t.Errorf("a Go process: %v\n%s", err, cmd.Stderr)
		}
	}
	for _, m := range managers {
		m.clean(m.answerWithin(2 * bound))
	}
	if n := pgtest.One[int32](t, dsn, "SELECT n FROM counter"); n != 4*rounds {
		t.Errorf("the counter is at %d, want %d", n, 4*rounds)
	}
	unlocked(t, dsn, keys[1])
}
