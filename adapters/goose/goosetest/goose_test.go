package goosetest

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/pgmutex/pgmutex"
	pgmutexgoose "github.com/pgmutex/pgmutex/adapters/goose"
	"github.com/pgmutex/pgmutex/advisory"
	"github.com/pgmutex/pgmutex/internal/pgtest"
	"github.com/pgmutex/pgmutex/lease"
)

var (
	_ lock.Locker        = (*pgmutexgoose.Locker)(nil)
	_ lock.SessionLocker = (*pgmutexgoose.SessionLocker)(nil)
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// migrations build an index in the way that waits for every transaction that is
// older, on a table that a marker shows to have been filled once.
var migrations = fstest.MapFS{
	"00001_table.sql": {Data: []byte(`-- +goose Up
CREATE TABLE orders (id bigint PRIMARY KEY, customer bigint);
CREATE TABLE runs (at timestamptz DEFAULT clock_timestamp());
INSERT INTO orders SELECT n, n % 100 FROM generate_series(1, 20000) n;
`)},
	"00002_index.sql": {Data: []byte(`-- +goose NO TRANSACTION
-- +goose Up
INSERT INTO runs DEFAULT VALUES;
SELECT pg_sleep(0.5);
CREATE INDEX CONCURRENTLY orders_customer ON orders (customer);
`)},
}

// advisoryLocks counts the session's kind with a 63-bit key in this database.
const advisoryLocks = `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

// newProvider makes goose as a program of its own has it.
func newProvider(t *testing.T, dsn string, locker goose.ProviderOption, more ...goose.ProviderOption) *goose.Provider {
	t.Helper()
	provider, err := goose.NewProvider(goose.DialectPostgres, openDB(t, dsn), fs.FS(migrations), append(more, locker)...)
	pgtest.Must(t, err)
	return provider
}

func openDB(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dsn)
	pgtest.Must(t, err)
	t.Cleanup(pool.Close)
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// withLocker returns the option with a client of its own.
func withLocker(t *testing.T, dsn string, opts *pgmutex.Options) goose.ProviderOption {
	t.Helper()
	locks, err := lease.Open(t.Context(), dsn, opts)
	pgtest.Must(t, err)
	t.Cleanup(func() {
		if n := locks.HeldCount(); n > 0 {
			t.Errorf("%d locks are still held", n)
		}
		_ = locks.Close(context.Background())
	})
	return goose.WithLocker(pgmutexgoose.NewLocker(locks, "app-migrations"))
}

// A told is goose's SessionLocker that tells when it is asked.
type told struct {
	lock.SessionLocker
	asked chan<- struct{}
}

func (l told) SessionLock(ctx context.Context, conn *sql.Conn) error {
	l.asked <- struct{}{}
	return l.SessionLocker.SessionLock(ctx, conn)
}

// TestTwoProviders: both come to an end, although one builds an index
// concurrently while the other waits, and the one that waited applies nothing.
func TestTwoProviders(t *testing.T) {
	for name, lockers := range map[string]func(t *testing.T, dsn string, waits chan<- struct{}) (first, second goose.ProviderOption){
		"locker": func(t *testing.T, dsn string, waits chan<- struct{}) (first, second goose.ProviderOption) {
			pgtest.Must(t, lease.Migrate(t.Context(), dsn, nil))
			return withLocker(t, dsn, nil), withLocker(t, dsn, &pgmutex.Options{Hooks: []pgmutex.Hooks{{
				Contended: func(context.Context, pgmutex.Event) { waits <- struct{}{} },
			}}})
		},
		"session locker": func(_ *testing.T, _ string, waits chan<- struct{}) (first, second goose.ProviderOption) {
			locker := pgmutexgoose.NewSessionLocker("app-migrations")
			return goose.WithSessionLocker(locker), goose.WithSessionLocker(told{locker, waits})
		},
	} {
		t.Run(name, func(t *testing.T) {
			dsn := pgtest.Shared(t).Database(t)
			waits := make(chan struct{}, 100)
			first, second := lockers(t, dsn, waits)
			testTwoProviders(t, dsn, newProvider(t, dsn, first), newProvider(t, dsn, second), waits)
			if n := pgtest.One[int](t, dsn, advisoryLocks); n != 0 {
				t.Errorf("%d advisory locks are left", n)
			}
		})
	}
}

func testTwoProviders(t *testing.T, dsn string, a, b *goose.Provider, waits <-chan struct{}) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	type result struct {
		applied int
		err     error
	}
	results := make(chan result, 2)
	up := func(p *goose.Provider) {
		applied, err := p.Up(ctx)
		results <- result{len(applied), err}
	}
	go up(a)
	pgtest.WaitFor(t, "the first provider to be at its second migration", func() bool {
		return pgtest.One[bool](t, dsn, "SELECT to_regclass('runs') IS NOT NULL") && pgtest.One[int](t, dsn, "SELECT count(*) FROM runs") == 1
	})
	go up(b)
	select {
	case <-waits:
	case <-ctx.Done():
		t.Fatal("the second provider did not wait")
	}
	applied := 0
	for range 2 {
		r := <-results
		if r.err != nil {
			t.Error(r.err)
		}
		applied += r.applied
	}
	if applied != 2 {
		t.Errorf("%d migrations were applied, want 2", applied)
	}
	if n := pgtest.One[int](t, dsn, "SELECT count(*) FROM runs"); n != 1 {
		t.Errorf("the second migration ran %d times", n)
	}
	if !pgtest.One[bool](t, dsn, "SELECT indisvalid FROM pg_index WHERE indexrelid = 'orders_customer'::regclass") {
		t.Error("the index is not valid")
	}
}

// TestLossWithLocker: what the documentation says. goose is not told, its
// caller is.
func TestLossWithLocker(t *testing.T) {
	dsn := pgtest.Shared(t).Database(t)
	pgtest.Must(t, lease.Migrate(t.Context(), dsn, nil))
	lost := make(chan struct{})
	locker := withLocker(t, dsn, &pgmutex.Options{StaleAfter: 3 * time.Second, Hooks: []pgmutex.Hooks{{
		Lost: func(context.Context, pgmutex.Event) { close(lost) },
	}}})
	provider := newProvider(t, dsn, locker, goose.WithGoMigrations(goose.NewGoMigration(3, &goose.GoFunc{RunDB: func(ctx context.Context, _ *sql.DB) error {
		if err := forceRelease(ctx, dsn); err != nil {
			return err
		}
		<-lost
		return ctx.Err() // has not ended
	}}, nil)))
	_, err := provider.Up(t.Context())
	var loss *pgmutex.LostError
	if !errors.As(err, &loss) {
		t.Errorf("got %v", err)
	}
	if n := pgtest.One[int](t, dsn, "SELECT max(version_id) FROM goose_db_version"); n != 3 {
		t.Errorf("the version is %d, want 3", n)
	}
}

// TestLossWithDo: the migration stops where it stands.
func TestLossWithDo(t *testing.T) {
	dsn := pgtest.Shared(t).Database(t)
	pgtest.Must(t, lease.Migrate(t.Context(), dsn, nil))
	locks, err := lease.Open(t.Context(), dsn, &pgmutex.Options{StaleAfter: 3 * time.Second})
	pgtest.Must(t, err)
	defer locks.Close(context.Background())
	provider, err := goose.NewProvider(goose.DialectPostgres, openDB(t, dsn), nil, goose.WithGoMigrations(
		goose.NewGoMigration(1, &goose.GoFunc{RunDB: func(ctx context.Context, _ *sql.DB) error {
			if err := forceRelease(ctx, dsn); err != nil {
				return err
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}}, nil)))
	pgtest.Must(t, err)
	err = locks.Do(t.Context(), "app-migrations", func(ctx context.Context) error {
		_, err := provider.Up(ctx)
		return err
	})
	var loss *pgmutex.LostError
	if !errors.As(err, &loss) {
		t.Errorf("got %v", err)
	}
	if n := pgtest.One[int](t, dsn, "SELECT count(*) FROM goose_db_version WHERE version_id = 1"); n != 0 {
		t.Error("the migration is marked as applied")
	}
}

// TestSessionEnds: work and lock end together, and the pool gets no locked
// session back.
func TestSessionEnds(t *testing.T) {
	dsn := pgtest.Shared(t).Database(t)
	locker := pgmutexgoose.NewSessionLocker("app-migrations")
	provider := newProvider(t, dsn, goose.WithSessionLocker(locker), goose.WithGoMigrations(
		goose.NewGoMigration(3, &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
			if n := pgtest.One[int](t, dsn, advisoryLocks); n != 1 {
				t.Errorf("%d advisory locks while migrating", n)
			}
			var pid int
			if err := tx.QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
				return err
			}
			pgtest.Exec(t, dsn, "SELECT pg_terminate_backend($1)", pid)
			_, err := tx.ExecContext(ctx, "SELECT 1")
			return err
		}}, nil)))
	if _, err := provider.Up(t.Context()); err == nil {
		t.Error("the migration went on without its session")
	}
	pgtest.WaitFor(t, "the lock to be gone", func() bool { return pgtest.One[int](t, dsn, advisoryLocks) == 0 })
}

func TestSessionLockerRefusesShared(t *testing.T) {
	dsn := pgtest.Shared(t).Database(t)
	locker := pgmutexgoose.NewSessionLocker("app-migrations").With(advisory.NameOptions{Shared: true})
	if _, err := newProvider(t, dsn, goose.WithSessionLocker(locker)).Up(t.Context()); err == nil {
		t.Error("migrated under a shared lock")
	}
}

// forceRelease is an operator who breaks the lock.
func forceRelease(ctx context.Context, dsn string) error {
	operator, err := lease.Open(ctx, dsn, nil)
	if err != nil {
		return err
	}
	defer operator.Close(context.WithoutCancel(ctx))
	seen, err := operator.Inspect(ctx, "app-migrations")
	if err != nil {
		return err
	}
	return operator.ForceRelease(ctx, seen, &pgmutex.ForceOptions{Reason: "test", Now: true})
}
