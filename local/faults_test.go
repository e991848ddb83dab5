package local

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"

	"github.com/pgmutex/pgmutex/engine"
)

// faulty is an engine whose way to the store can be broken.
type faulty struct {
	*process

	mu     sync.Mutex
	killed bool
	held   chan struct{} // closed when replies may pass, nil while they do
}

var errKilled = errors.New("local: this process was killed")

func (f *faulty) kill() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.killed = true
}

func (f *faulty) cut() {
	if f.enter(context.Background()) == nil {
		defer f.leave()
		f.drop()
	}
}

func (f *faulty) hold() (release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	held := make(chan struct{})
	f.held = held
	return sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.held = nil
		close(held)
	})
}

// arrives reports whether a call gets to the store.
func (f *faulty) arrives() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.killed
}

// returns reports whether its reply gets back.
func (f *faulty) returns(ctx context.Context) bool {
	f.mu.Lock()
	held := f.held
	f.mu.Unlock()
	if held == nil {
		return f.arrives()
	}
	select {
	case <-held:
		return f.arrives()
	case <-ctx.Done():
		return false
	}
}

// through makes a call with one answer for each element of a batch.
func through[Q, A any](ctx context.Context, f *faulty, batch []Q, call func(context.Context, []Q) []A, lost A) []A {
	if f.arrives() {
		if answers := call(ctx, batch); f.returns(ctx) {
			return answers
		}
	}
	return slices.Repeat([]A{lost}, len(batch))
}

func (f *faulty) Acquire(ctx context.Context, batch []engine.Request) []engine.Answer {
	return through(ctx, f, batch, f.process.Acquire, engine.Answer{Err: errKilled})
}

func (f *faulty) Renew(ctx context.Context, batch []engine.Term) []engine.Standing {
	return through(ctx, f, batch, f.process.Renew, engine.Standing{Err: errKilled})
}

func (f *faulty) Explain(ctx context.Context, batch []engine.Term) []engine.Standing {
	return through(ctx, f, batch, f.process.Explain, engine.Standing{Err: errKilled})
}

func (f *faulty) Release(ctx context.Context, batch []engine.Term) []engine.Removal {
	return through(ctx, f, batch, f.process.Release, engine.Removal{Err: errKilled})
}

func (f *faulty) Leave(ctx context.Context, names []string) error {
	if !f.arrives() {
		return errKilled
	}
	return f.process.Leave(ctx, names)
}

func (f *faulty) Inspect(ctx context.Context, name string) (engine.Status, error) {
	if !f.arrives() {
		return engine.Status{}, errKilled
	}
	return f.process.Inspect(ctx, name)
}

func (f *faulty) List(ctx context.Context) iter.Seq2[engine.Status, error] {
	if !f.arrives() {
		return func(yield func(engine.Status, error) bool) { yield(engine.Status{}, errKilled) }
	}
	return f.process.List(ctx)
}

func (f *faulty) ForceRelease(ctx context.Context, seen engine.Status, how engine.Force) error {
	if !f.arrives() {
		return errKilled
	}
	return f.process.ForceRelease(ctx, seen, how)
}

// Close of one that was killed leaves its places behind.
func (f *faulty) Close(ctx context.Context) error {
	if !f.arrives() && f.enter(ctx) == nil {
		clear(f.places)
		f.process.leave()
	}
	return f.process.Close(ctx)
}
