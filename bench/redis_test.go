//go:build bench

package bench

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// expiry is that of locks in Redis: longer than anything here holds one.
const expiry = time.Minute

func redisPeers() []contestant {
	var all []contestant
	for _, s := range []store{redisMemory, redisSynced} {
		suffix, rows, local := "", in(cycling, waiting, []string{"busy", "holds"}), []string{"held"}
		if s == redisSynced {
			suffix, rows, local = ", synced", in(cycling, []string{"busy"}), nil
		}
		all = append(all,
			contestant{
				name: "redislock" + suffix, how: "retries every 0.1 s (default: never); renewing is left to the caller", store: s,
				poll: 100 * time.Millisecond, in: rows,
				open: func(_ context.Context, at stores, _ time.Duration) (party, error) { return bsm(at[s]), nil },
			},
			contestant{
				name: "redsync" + suffix, how: "one Redis; defaults, retries every 50 to 250 ms; renewing is left to the caller", store: s,
				poll: 250 * time.Millisecond, in: in(rows, local),
				open: func(_ context.Context, at stores, _ time.Duration) (party, error) { return redlock(at[s]), nil },
			})
	}
	return all
}

func bsm(addr string) party {
	c := redis.NewClient(&redis.Options{Addr: addr})
	l := redislock.New(c)
	take := func(retry redislock.RetryStrategy) func(context.Context, string) (hold, error) {
		return func(ctx context.Context, name string) (hold, error) {
			// Without a deadline it waits no longer than the expiry.
			ctx, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			h, err := l.Obtain(ctx, name, expiry, &redislock.Options{RetryStrategy: retry})
			if errors.Is(err, redislock.ErrNotObtained) {
				err = errBusy
			}
			if err != nil {
				return hold{}, err
			}
			return hold{
				unlock: h.Release,
				renew:  func(ctx context.Context) error { return h.Refresh(ctx, expiry, nil) },
			}, nil
		}
	}
	return party{
		lock:  take(redislock.LinearBackoff(100 * time.Millisecond)),
		try:   take(redislock.NoRetry()),
		close: func() { c.Close() },
	}
}

func redlock(addr string) party {
	c := redis.NewClient(&redis.Options{Addr: addr})
	rs := redsync.New(goredis.NewPool(c))
	taken := func(m *redsync.Mutex, err error) (hold, error) {
		if held := new(redsync.ErrTaken); errors.As(err, &held) {
			err = errBusy
		}
		if err != nil {
			return hold{}, err
		}
		done := func(ok bool, err error) error {
			if err == nil && !ok {
				err = errors.New("not held")
			}
			return err
		}
		return hold{
			unlock: func(ctx context.Context) error { return done(m.UnlockContext(ctx)) },
			renew:  func(ctx context.Context) error { return done(m.ExtendContext(ctx)) },
		}, nil
	}
	return party{
		lock: func(ctx context.Context, name string) (hold, error) {
			m := rs.NewMutex(name, redsync.WithExpiry(expiry), redsync.WithTries(1<<30))
			return taken(m, m.LockContext(ctx))
		},
		try: func(ctx context.Context, name string) (hold, error) {
			m := rs.NewMutex(name, redsync.WithExpiry(expiry))
			return taken(m, m.TryLockContext(ctx))
		},
		close: func() { c.Close() },
	}
}
