package memory_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/enginetest"
	"github.com/pgmutex/pgmutex/memory"
)

func TestContract(t *testing.T) {
	t.Run("Hints", func(t *testing.T) {
		enginetest.Run(t, func(*testing.T) enginetest.Harness { return bubble(contractHarness(true)) })
	})
	t.Run("PollOnly", func(t *testing.T) {
		enginetest.Run(t, func(*testing.T) enginetest.Harness { return bubble(contractHarness(false)) })
	})
}

func BenchmarkContract(b *testing.B) {
	enginetest.Benchmarks(b, func(*testing.B) enginetest.Harness { return contractHarness(true) })
}

// contractHarness is a fresh store. Faults of one client are set by its label,
// and the suite gives each of its clients one of its own.
func contractHarness(hints bool) enginetest.Harness {
	store := memory.New()
	healthy := memory.Faults{NoHints: !hints}
	store.SetFaults("", healthy)
	h := enginetest.Harness{
		Abilities: enginetest.Shared | enginetest.PerHoldTiming | enginetest.Tokens | enginetest.Guard |
			enginetest.Inspect | enginetest.History | enginetest.Force | enginetest.Ask |
			enginetest.Queue | enginetest.Durable,
		Scale: 30 * time.Second,
		Client: func(t testing.TB, opts *pgmutex.Options) (*pgmutex.Client, error) {
			return store.Open(t.Context(), opts)
		},
		Faulter: enginetest.Faulter{
			Kill: func(_ testing.TB, c *pgmutex.Client) {
				store.SetFaults(c.HolderID(), memory.Faults{Partitioned: true})
			},
			Cut: func(_ testing.TB, c *pgmutex.Client) {
				broken := healthy
				broken.DropReplies = true
				store.SetFaults(c.HolderID(), broken)
				time.AfterFunc(time.Second, func() { store.SetFaults(c.HolderID(), healthy) })
			},
			HoldReplies: func(_ testing.TB, c *pgmutex.Client) func() {
				slow := healthy
				slow.ReplyDelay = 1000 * time.Hour
				store.SetFaults(c.HolderID(), slow)
				return func() { store.SetFaults(c.HolderID(), healthy) }
			},
		},
	}
	if hints {
		h.Abilities |= enginetest.Hints
	}
	return h
}

// bubble runs the cases under synctest.
func bubble(h enginetest.Harness) enginetest.Harness {
	h.Case = synctest.Test
	return h
}
