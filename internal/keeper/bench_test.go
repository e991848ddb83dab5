package keeper

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex/engine"
)

// These are what an acquisition costs outside of the engine.

func newBench(b *testing.B, answer engine.Answer) *Keeper {
	origin := time.Now()
	k := New(Config{
		Engine:         &prompt{answer: answer},
		Elapsed:        func() time.Duration { return time.Since(origin) },
		PollInterval:   time.Second,
		ReleaseTimeout: 5 * time.Second,
		Observe:        func(Event) {},
	})
	b.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		k.Close(ctx)
	})
	b.ReportAllocs()
	return k
}

// prompt is an engine that has the same answer for everybody at once.
type prompt struct {
	engine.Engine
	answer engine.Answer
}

func (*prompt) Describe() engine.Description { return engine.Description{} }

func (p *prompt) Acquire(_ context.Context, batch []engine.Request) []engine.Answer {
	answers := make([]engine.Answer, len(batch))
	for i := range answers {
		answers[i] = p.answer
	}
	return answers
}

func (*prompt) Release(_ context.Context, batch []engine.Term) []engine.Removal {
	removals := make([]engine.Removal, len(batch))
	for i := range removals {
		removals[i].Outcome = engine.Removed
	}
	return removals
}

func (*prompt) Renew(_ context.Context, batch []engine.Term) []engine.Standing {
	standings := make([]engine.Standing, len(batch))
	for i := range standings {
		standings[i].Health = engine.Held
	}
	return standings
}

func cycle(b *testing.B, k *Keeper, name string) {
	res := k.Try(b.Context(), ask(name, nil))
	if res.Lease == nil {
		b.Fatalf("%+v", res)
	}
	if r, err := res.Lease.Release(b.Context()); r != Confirmed {
		b.Fatal(r, err)
	}
}

func BenchmarkCycle(b *testing.B) {
	k := newBench(b, engine.Answer{Outcome: engine.Granted})
	for b.Loop() {
		cycle(b, k, "x")
	}
}

// BenchmarkCycleTogether is cycles of 64 goroutines, each at a name of its own.
func BenchmarkCycleTogether(b *testing.B) {
	k := newBench(b, engine.Answer{Outcome: engine.Granted})
	var last atomic.Int64
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		name := strconv.FormatInt(last.Add(1), 10)
		for pb.Next() {
			cycle(b, k, name)
		}
	})
}

func BenchmarkBusy(b *testing.B) {
	k := newBench(b, busy(rival("1", 0)))
	for b.Loop() {
		if res := k.Try(b.Context(), ask("x", nil)); !res.Busy {
			b.Fatalf("%+v", res)
		}
	}
}

// BenchmarkRenew is one renewal of 10,000 leases.
func BenchmarkRenew(b *testing.B) {
	k := newBench(b, engine.Answer{Outcome: engine.Granted})
	var leases []*Lease
	for i := range 10_000 {
		leases = append(leases, k.Try(b.Context(), ask(strconv.Itoa(i), nil)).Lease)
	}
	b.ResetTimer()
	for b.Loop() {
		if ok, err := k.renew(b.Context(), leases); !ok {
			b.Fatal(err)
		}
	}
}
