//go:build bench

package bench

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3/lock"

	"github.com/pgmutex/pgmutex"
)

const (
	rawName     = "raw INSERT + DELETE"
	rawWideName = "raw INSERT + DELETE, 64 connections"
)

// connections is what a contestant gets that needs one for each lock.
const connections = 100

func postgresPeers() []contestant {
	return []contestant{
		{
			name: rawName, how: "the limit, not a lock: two statements of a pgx pool of 16", store: postgres,
			in:   in(cycling, []string{"busy"}),
			open: func(ctx context.Context, s stores, _ time.Duration) (party, error) { return raw(ctx, s, 16) },
		}, {
			name: rawWideName, how: "the same with a pool of 64", store: postgres, in: cycling[1:],
			open: func(ctx context.Context, s stores, _ time.Duration) (party, error) { return raw(ctx, s, 64) },
		}, {
			name: "raw pg_advisory_lock", how: "a connection for each lock, of a pgx pool of 100; waiters block in the server",
			store: postgres, most: connections, in: in(cycling, waiting, []string{"advisory", "busy", "holds"}), open: rawAdvisory,
		}, {
			name: "goose session locker", how: "a connection for each lock, of a pool of 100; polls every second, the least it allows (default 5 s)",
			store: postgres, poll: time.Second, most: connections, in: in(cycling, waiting, []string{"advisory", "holds"}), open: gooseSession,
		}, {
			name: "goose table locker", how: "16 connections; polls every 0.1 s (default 5 s)",
			store: postgres, poll: 100 * time.Millisecond, most: 1000, in: in(cycling, waiting, []string{"busy", "holds"}), open: gooseTable,
		},
	}
}

func pool(ctx context.Context, s stores, size int32) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(s[postgres])
	if err != nil {
		return nil, err
	}
	config.MaxConns = size
	return pgxpool.NewWithConfig(ctx, config)
}

// raw takes a row and removes it, as little as a lock could do.
func raw(ctx context.Context, s stores, size int32) (party, error) {
	p, err := pool(ctx, s, size)
	if err != nil {
		return party{}, err
	}
	return party{
		lock: func(ctx context.Context, name string) (hold, error) {
			_, err := p.Exec(ctx, `INSERT INTO raw (name) VALUES ($1)`, name)
			return hold{unlock: func(ctx context.Context) error {
				_, err := p.Exec(ctx, `DELETE FROM raw WHERE name = $1`, name)
				return err
			}}, err
		},
		// A try of a lock that is held, as most tables of locks do it.
		try: func(ctx context.Context, name string) (hold, error) {
			tag, err := p.Exec(ctx, `INSERT INTO raw AS r (name) VALUES ($1)
				ON CONFLICT (name) DO UPDATE SET beat = now() WHERE r.beat < now() - interval '1 hour'`, name)
			if err == nil && tag.RowsAffected() == 0 {
				err = errBusy
			}
			return hold{unlock: func(context.Context) error { return nil }}, err
		},
		close: p.Close,
	}, nil
}

// rawAdvisory is what a program writes that has no library.
func rawAdvisory(ctx context.Context, s stores, _ time.Duration) (party, error) {
	p, err := pool(ctx, s, connections)
	if err != nil {
		return party{}, err
	}
	take := func(statement string) func(ctx context.Context, name string) (hold, error) {
		return func(ctx context.Context, name string) (hold, error) {
			conn, err := p.Acquire(ctx)
			if err != nil {
				return hold{}, err
			}
			id, granted := pgmutex.AdvisoryID(name), false
			if err = conn.QueryRow(ctx, statement, id).Scan(&granted); err == nil && !granted {
				err = errBusy
			}
			if err != nil {
				conn.Release()
				return hold{}, err
			}
			return hold{unlock: func(ctx context.Context) error {
				defer conn.Release()
				_, err := conn.Exec(ctx, `SELECT pg_advisory_unlock($1)`, id)
				return err
			}}, nil
		}
	}
	return party{
		lock:  take(`SELECT true FROM pg_advisory_lock($1)`),
		try:   take(`SELECT pg_try_advisory_lock($1)`),
		close: p.Close,
	}, nil
}

func database(s stores, size int) (*sql.DB, error) {
	db, err := sql.Open("pgx", s[postgres])
	if err == nil {
		db.SetMaxOpenConns(size)
		db.SetMaxIdleConns(size)
	}
	return db, err
}

func gooseSession(_ context.Context, s stores, _ time.Duration) (party, error) {
	db, err := database(s, connections)
	if err != nil {
		return party{}, err
	}
	return party{
		lock: func(ctx context.Context, name string) (hold, error) {
			conn, err := db.Conn(ctx)
			if err != nil {
				return hold{}, err
			}
			l, err := lock.NewPostgresSessionLocker(lock.WithLockID(pgmutex.AdvisoryID(name)), lock.WithLockTimeout(1, 3600))
			if err == nil {
				err = l.SessionLock(ctx, conn)
			}
			if err != nil {
				conn.Close()
				return hold{}, err
			}
			return hold{unlock: func(ctx context.Context) error {
				defer conn.Close()
				return l.SessionUnlock(ctx, conn)
			}}, nil
		},
		close: func() { db.Close() },
	}, nil
}

// gooseTable keeps one locker for each name, as a process of goose's has.
func gooseTable(_ context.Context, s stores, heartbeat time.Duration) (party, error) {
	db, err := database(s, 16)
	if err != nil {
		return party{}, err
	}
	var lockers, triers sync.Map
	locker := func(kind *sync.Map, name string, every time.Duration, tries uint64) (lock.Locker, error) {
		if l, ok := kind.Load(name); ok {
			return l.(lock.Locker), nil
		}
		options := []lock.TableLockerOption{
			lock.WithTableLockID(pgmutex.AdvisoryID(name)), lock.WithTableLockTimeout(every, tries),
		}
		if heartbeat > 0 {
			options = append(options, lock.WithTableHeartbeatInterval(heartbeat))
		}
		fresh, err := lock.NewPostgresTableLocker(options...)
		if err != nil {
			return nil, err
		}
		l, _ := kind.LoadOrStore(name, fresh)
		return l.(lock.Locker), nil
	}
	taken := func(ctx context.Context, l lock.Locker) (hold, error) {
		// Its heartbeats end with the context of the acquisition.
		if err := l.Lock(context.WithoutCancel(ctx), db); err != nil {
			return hold{}, err
		}
		return hold{unlock: func(ctx context.Context) error { return l.Unlock(ctx, db) }}, nil
	}
	return party{
		lock: func(ctx context.Context, name string) (hold, error) {
			l, err := locker(&lockers, name, 100*time.Millisecond, 36_000)
			if err != nil {
				return hold{}, err
			}
			return taken(ctx, l)
		},
		// It tries twice at least; the pause in between is as short as it goes.
		try: func(ctx context.Context, name string) (hold, error) {
			l, err := locker(&triers, name, time.Nanosecond, 1)
			if err != nil {
				return hold{}, err
			}
			h, err := taken(ctx, l)
			if err != nil {
				err = fmt.Errorf("%w: %w", errBusy, err)
			}
			return h, err
		},
		close: func() { db.Close() },
	}, nil
}
