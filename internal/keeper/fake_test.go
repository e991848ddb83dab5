package keeper

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex/engine"
)

// fake is an engine whose answers each test writes. Without one it grants,
// renews and removes everything at once.
type fake struct {
	acquire func(ctx context.Context, r engine.Request) engine.Answer
	renew   func(ctx context.Context, t engine.Term) engine.Standing
	release func(ctx context.Context, t engine.Term) engine.Removal
	explain func(t engine.Term) engine.Standing

	detached bool

	mu       sync.Mutex
	requests []engine.Request
	renewals [][]engine.Term // one for each call
	removals []engine.Term
	left     []string
}

func (f *fake) Describe() engine.Description {
	return engine.Description{Name: "fake", Detached: f.detached}
}
func (f *fake) Start(context.Context, engine.Sink) error { return nil }
func (f *fake) Close(context.Context) error              { return nil }
func (f *fake) counts() (requests, renewals, removals int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.requests), len(f.renewals), len(f.removals)
}

func (f *fake) Leave(_ context.Context, names []string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = append(f.left, names...)
	return nil
}

func (f *fake) Acquire(ctx context.Context, batch []engine.Request) []engine.Answer {
	var answers []engine.Answer
	for _, r := range batch {
		f.mu.Lock()
		f.requests = append(f.requests, r)
		f.mu.Unlock()
		a := engine.Answer{Outcome: engine.Granted}
		if f.acquire != nil {
			a = f.acquire(ctx, r)
		}
		answers = append(answers, a)
	}
	return answers
}

func (f *fake) Renew(ctx context.Context, batch []engine.Term) []engine.Standing {
	f.mu.Lock()
	f.renewals = append(f.renewals, batch)
	f.mu.Unlock()
	var standings []engine.Standing
	for _, t := range batch {
		s := engine.Standing{Health: engine.Held}
		if f.renew != nil {
			s = f.renew(ctx, t)
		}
		standings = append(standings, s)
	}
	return standings
}

func (f *fake) Explain(_ context.Context, batch []engine.Term) []engine.Standing {
	var standings []engine.Standing
	for _, t := range batch {
		var s engine.Standing
		if f.explain != nil {
			s = f.explain(t)
		}
		standings = append(standings, s)
	}
	return standings
}

func (f *fake) Release(ctx context.Context, batch []engine.Term) []engine.Removal {
	var removals []engine.Removal
	for _, t := range batch {
		f.mu.Lock()
		f.removals = append(f.removals, t)
		f.mu.Unlock()
		r := engine.Removal{Outcome: engine.Removed}
		if f.release != nil {
			r = f.release(ctx, t)
		}
		removals = append(removals, r)
	}
	return removals
}

// A world is a Keeper with its engine, its events and the endings of its leases.
type world struct {
	*Keeper
	engine *fake

	mu     sync.Mutex
	events []Event
}

const (
	trusted   = 8 * time.Second
	stale     = 12 * time.Second
	heartbeat = time.Second
)

func newWorld(t *testing.T, f *fake) *world {
	t.Helper()
	w := &world{engine: f}
	origin := time.Now()
	w.Keeper = New(Config{
		Engine:         f,
		Elapsed:        func() time.Duration { return time.Since(origin) },
		PollInterval:   500 * time.Millisecond,
		ReleaseTimeout: 2 * time.Second,
		Observe: func(e Event) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.events = append(w.events, e)
		},
	})
	return w
}

// stopNow closes the keeper without waiting for owners.
func (w *world) stopNow() []string {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return w.Close(ctx)
}

func (w *world) count(kind Kind) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, e := range w.events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// ending is what a test learns of a lease's end.
type ending struct {
	mu sync.Mutex
	e  *Ending
	at time.Time
	n  int
}

func (e *ending) set(end *Ending) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.e, e.at, e.n = end, time.Now(), e.n+1
}

func (e *ending) get() (*Ending, time.Time, int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.e, e.at, e.n
}

func ask(name string, end *ending) Ask {
	if end == nil {
		end = &ending{}
	}
	return Ask{
		Name:    name,
		Holder:  "me",
		Timing:  engine.Timing{StaleAfter: stale, Heartbeat: heartbeat, AlertAfter: 3 * time.Second},
		Trust:   trusted,
		OnGrant: func(*Lease) {},
		OnEnd:   end.set,
	}
}

func (w *world) mustTry(t *testing.T, name string, end *ending) *Lease {
	t.Helper()
	res := w.Try(t.Context(), ask(name, end))
	if res.Lease == nil {
		t.Fatalf("not granted: %+v", res)
	}
	return res.Lease
}

// rival is a holder that others see.
func rival(beat string, age time.Duration) *engine.Rival {
	return &engine.Rival{Holder: "other", ID: "other~1", Heartbeat: beat, Age: age, StaleAfter: stale, Interval: heartbeat}
}

func busy(r *engine.Rival) engine.Answer {
	return engine.Answer{Outcome: engine.Busy, Holder: r, Hinted: true}
}
