package local

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/enginetest"
)

func TestContract(t *testing.T) {
	enginetest.Run(t, func(t *testing.T) enginetest.Harness {
		path := store(t)
		var mu sync.Mutex
		engines := map[*pgmutex.Client]*faulty{}
		of := func(c *pgmutex.Client) *faulty {
			mu.Lock()
			defer mu.Unlock()
			return engines[c]
		}
		return enginetest.Harness{
			Abilities: enginetest.PerHoldTiming | enginetest.Tokens | enginetest.Inspect | enginetest.History |
				enginetest.Force | enginetest.Ask | enginetest.Queue | enginetest.Durable,
			Scale:   time.Second,
			Workers: 8,
			Client: func(_ testing.TB, opts *pgmutex.Options) (*pgmutex.Client, error) {
				f := &faulty{process: newProcess(path, Options{}, thisMachine())}
				c, err := pgmutex.New(context.Background(), f, opts)
				if err != nil {
					return nil, err
				}
				mu.Lock()
				defer mu.Unlock()
				engines[c] = f
				return c, nil
			},
			Faulter: enginetest.Faulter{
				Kill:        func(_ testing.TB, c *pgmutex.Client) { of(c).kill() },
				Cut:         func(_ testing.TB, c *pgmutex.Client) { of(c).cut() },
				HoldReplies: func(_ testing.TB, c *pgmutex.Client) func() { return of(c).hold() },
			},
		}
	})
}

func BenchmarkContract(b *testing.B) {
	enginetest.Benchmarks(b, func(b *testing.B) enginetest.Harness {
		path := store(b)
		return enginetest.Harness{
			Abilities: enginetest.PerHoldTiming | enginetest.Tokens | enginetest.Inspect | enginetest.Queue | enginetest.Durable,
			Scale:     time.Second,
			Client: func(_ testing.TB, opts *pgmutex.Options) (*pgmutex.Client, error) {
				return Open(context.Background(), path, opts)
			},
		}
	})
}
