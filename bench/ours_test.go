//go:build bench

package bench

import (
	"context"
	"errors"
	"time"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/advisory"
	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/lease"
	"github.com/pgmutex/pgmutex/local"
	"github.com/pgmutex/pgmutex/memory"
)

const (
	leaseName    = "pgmutex lease"
	advisoryName = "pgmutex advisory"
)

func ours() []contestant {
	return []contestant{
		{
			name: leaseName, how: "defaults", store: postgres,
			in: in(cycling, waiting, []string{"busy", "holds", "renewal", "held"}),
			open: func(ctx context.Context, s stores, heartbeat time.Duration) (party, error) {
				return client(lease.Open(ctx, s[postgres], &pgmutex.Options{Heartbeat: heartbeat}))
			},
		}, {
			name: "pgmutex lease, polling", how: "`PollOnly`, as behind a pooler; a look every 0.5 s", store: postgres,
			poll: 500 * time.Millisecond, in: waiting,
			open: func(ctx context.Context, s stores, _ time.Duration) (party, error) {
				return started(ctx, func() (engine.Engine, error) {
					return lease.New(s[postgres], &lease.Options{PollOnly: true})
				})
			},
		}, {
			name: advisoryName, how: "defaults", store: postgres, most: 1000,
			in: in(cycling, waiting, []string{"advisory", "busy", "holds", "held"}),
			open: func(ctx context.Context, s stores, _ time.Duration) (party, error) {
				return client(advisory.Open(ctx, s[postgres], nil))
			},
		}, {
			name: "pgmutex local", how: "one machine only; SQLite, WAL, synced at checkpoints", store: file,
			poll: 500 * time.Millisecond, in: in(cycling, []string{"handover", "busy", "held"}),
			open: func(ctx context.Context, s stores, _ time.Duration) (party, error) {
				return client(local.Open(ctx, s[file], nil))
			},
		}, {
			name: "pgmutex memory", how: "one process only, for tests", store: none,
			in: in(cycling, []string{"held"}),
			open: func(ctx context.Context, _ stores, _ time.Duration) (party, error) {
				return client(memory.New().Open(ctx, nil))
			},
		},
	}
}

func started(ctx context.Context, made func() (engine.Engine, error)) (party, error) {
	e, err := made()
	if err != nil {
		return party{}, err
	}
	return client(pgmutex.New(ctx, e, nil))
}

func client(c *pgmutex.Client, err error) (party, error) {
	if err != nil {
		return party{}, err
	}
	taken := func(h *pgmutex.Hold, err error) (hold, error) {
		if errors.Is(err, pgmutex.ErrHeld) {
			return hold{}, errBusy
		}
		if err != nil {
			return hold{}, err
		}
		return hold{unlock: h.Release}, nil
	}
	return party{
		lock: func(ctx context.Context, name string) (hold, error) { return taken(c.Acquire(ctx, name)) },
		try:  func(ctx context.Context, name string) (hold, error) { return taken(c.TryAcquire(ctx, name)) },
		close: func() {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			c.Close(ctx) // what is still held may lapse: the server goes with the test
		},
	}, nil
}
