package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex"
)

func open(t testing.TB, path string, opts *pgmutex.Options) *pgmutex.Client {
	t.Helper()
	c, err := Open(context.Background(), path, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = c.ReleaseAll(context.Background())
		_ = c.Close(context.Background())
	})
	return c
}

func TestClient(t *testing.T) {
	ctx, path := context.Background(), store(t)
	a, b := open(t, path, nil), open(t, path, nil)
	err := a.Do(ctx, "x", func(ctx context.Context) error {
		if err := b.TryDo(ctx, "x", func(context.Context) error { return nil }); !errors.Is(err, pgmutex.ErrHeld) {
			t.Errorf("the other client: %v", err)
		}
		h, _ := pgmutex.FromContext(ctx)
		if err := h.Guard(ctx, nil); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("Guard: %v", err)
		}
		return h.Heartbeat(ctx)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.TryDo(ctx, "x", func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
	if _, err := b.With(pgmutex.AcquireOptions{Shared: true}).TryAcquire(ctx, "x"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Shared: %v", err)
	}
}

func TestHandOver(t *testing.T) {
	ctx, path := context.Background(), store(t)
	a, b := open(t, path, nil), open(t, path, nil)
	h, err := a.Acquire(ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan time.Time, 1)
	go func() {
		h, err := b.Acquire(ctx, "x")
		got <- time.Now()
		if err != nil {
			t.Error(err)
			return
		}
		_ = h.Release(ctx)
	}()
	for s, err := a.Inspect(ctx, "x"); s.Waiters == 0 && err == nil; s, err = a.Inspect(ctx, "x") {
		time.Sleep(time.Millisecond) //nolint:forbidigo // between looks
	}
	released := time.Now()
	if err := h.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if d := (<-got).Sub(released); d > time.Second {
		t.Errorf("handed over after %v", d)
	}
}

func TestLazyDoesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing", "locks.db")
	c := open(t, path, &pgmutex.Options{Lazy: true})
	if _, err := c.TryAcquire(context.Background(), "x"); err == nil || errors.Is(err, pgmutex.ErrHeld) {
		t.Errorf("in a directory that is not there: %v", err)
	}
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := c.TryAcquire(context.Background(), "x"); err != nil {
		t.Errorf("once it is there: %v", err)
	}
}

func TestDefaultStoreIsMade(t *testing.T) {
	if runtime.GOOS == "darwin" {
		t.Skip("has no XDG_STATE_HOME")
	}
	state := filepath.Join(t.TempDir(), "state")
	t.Setenv("XDG_STATE_HOME", state)
	open(t, "", nil)
	for path, mode := range map[string]os.FileMode{"pgmutex": os.ModeDir | 0o700, "pgmutex/locks.db": 0o600} {
		info, err := os.Stat(filepath.Join(state, path))
		if err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
}

func TestPathStaysWhatItWas(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	c := open(t, "rel.db", &pgmutex.Options{Lazy: true})
	t.Chdir(t.TempDir())
	if _, err := c.TryAcquire(context.Background(), "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "rel.db")); err != nil {
		t.Error(err)
	}
}

func BenchmarkCycle(b *testing.B) {
	ctx := context.Background()
	c := open(b, store(b), nil)
	for b.Loop() {
		h, err := c.TryAcquire(ctx, "x")
		if err != nil {
			b.Fatal(err)
		}
		if err := h.Release(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCycleSynced is what it costs that the boot is not known.
func BenchmarkCycleSynced(b *testing.B) {
	ctx := context.Background()
	host := thisMachine()
	host.boot = func() string { return "" }
	c, err := pgmutex.New(ctx, newProcess(store(b), Options{}, host), nil)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := c.TryDo(ctx, "x", func(context.Context) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
	_ = c.Close(ctx)
}

func BenchmarkBusy(b *testing.B) {
	ctx, path := context.Background(), store(b)
	c, other := open(b, path, nil), open(b, path, nil)
	if _, err := other.TryAcquire(ctx, "x"); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := c.TryAcquire(ctx, "x"); !errors.Is(err, pgmutex.ErrHeld) {
			b.Fatal(err)
		}
	}
}

// BenchmarkOpen is what a command pays: open, acquire, release, close.
func BenchmarkOpen(b *testing.B) {
	ctx, path := context.Background(), store(b)
	for b.Loop() {
		c, err := Open(ctx, path, nil)
		if err != nil {
			b.Fatal(err)
		}
		h, err := c.TryAcquire(ctx, "x")
		if err != nil {
			b.Fatal(err)
		}
		_ = h.Release(ctx)
		_ = c.Close(ctx)
	}
}
