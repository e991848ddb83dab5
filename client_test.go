package pgmutex_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/memory"
)

func open(t testing.TB, opts *pgmutex.Options) (*memory.Store, *pgmutex.Client) {
	t.Helper()
	store := memory.New()
	client, err := store.Open(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(context.Background()) })
	return store, client
}

// The vectors are what the reference's Python lock manager derives; docs repeat
// them.
func TestAdvisoryIDVectors(t *testing.T) {
	for name, want := range map[string]int64{
		"a":                  5374906597990186442,
		"nightly-report":     7440995589958059143,
		"cutover:tenant-123": 7696161359070260854,
		"migration:00000000-0000-0000-0000-000000000000": 4826041402961503139,
		"ключ": 2153681812738117024,
	} {
		if got := pgmutex.AdvisoryID(name); got != want {
			t.Errorf("%q: %d, want %d", name, got, want)
		}
	}
}

func TestMigrationKey(t *testing.T) {
	tenant := [16]byte{0xAB, 0xCD, 0xEF, 0x01, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}
	for operation, want := range map[string]string{
		"":        "migration:abcdef01-0203-0405-0607-08090a0b0c0d",
		"cutover": "cutover:abcdef01-0203-0405-0607-08090a0b0c0d",
	} {
		if got := pgmutex.MigrationKey(tenant, operation); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestTokenIsAStringInJSON(t *testing.T) {
	for _, v := range []any{pgmutex.Info{Token: 1<<62 + 1}, pgmutex.Status{Token: 1<<62 + 1}, pgmutex.PastHold{Token: 1<<62 + 1}} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(b), `"token":"4611686018427387905"`) {
			t.Errorf("%T: %s", v, b)
		}
	}
}

// Inside a bubble the hours of the work pass in no time.
func TestLossInsideABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, locks := open(t, nil)
		steps := 0
		go func() {
			time.Sleep(5*time.Minute + time.Second)
			store.Lose("rebuild", pgmutex.LostTakenOver)
		}()
		err := locks.TryDo(t.Context(), "rebuild", func(ctx context.Context) error {
			for {
				steps++
				select {
				case <-time.After(time.Minute):
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
		})
		lost := (*pgmutex.LostError)(nil)
		if !errors.As(err, &lost) || lost.Reason() != pgmutex.LostTakenOver || steps != 6 {
			t.Fatalf("err %v after %d steps", err, steps)
		}
		if strings.Count(err.Error(), "lost") != 1 {
			t.Errorf("the loss is told twice: %q", err)
		}
	})
}

func TestHooksCannotHarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var client *pgmutex.Client
		closed := make(chan error, 10)
		hooks := []pgmutex.Hooks{
			{Acquired: func(context.Context, pgmutex.Event) { panic("boom") }},
			{Acquired: func(context.Context, pgmutex.Event) { time.Sleep(time.Minute) }},
			{Released: func(ctx context.Context, _ pgmutex.Event) { closed <- client.Close(ctx) }},
		}
		_, client = open(t, &pgmutex.Options{Hooks: hooks})
		start := time.Now()
		for range 10 {
			if err := client.Do(t.Context(), "x", func(context.Context) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		if waited := time.Since(start); waited != 0 {
			t.Fatalf("hooks held the locks up for %v", waited)
		}
		time.Sleep(time.Hour) // for the slow hook
		if err := <-closed; err != nil {
			t.Fatalf("Close inside a hook: %v", err)
		}
	})
}

func BenchmarkHeld(b *testing.B) {
	_, locks := open(b, nil)
	h, err := locks.Acquire(b.Context(), "x")
	if err != nil {
		b.Fatal(err)
	}
	defer h.Release(b.Context())
	b.ReportAllocs()
	for b.Loop() {
		if !h.Held() {
			b.Fatal("lost")
		}
	}
}

func BenchmarkErr(b *testing.B) {
	_, locks := open(b, nil)
	h, err := locks.Acquire(b.Context(), "x")
	if err != nil {
		b.Fatal(err)
	}
	defer h.Release(b.Context())
	b.ReportAllocs()
	for b.Loop() {
		if h.Err() != nil {
			b.Fatal("lost")
		}
	}
}

func BenchmarkCycle(b *testing.B) {
	_, locks := open(b, nil)
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		h, err := locks.Acquire(ctx, "x")
		if err != nil {
			b.Fatal(err)
		}
		if err := h.Release(ctx); err != nil {
			b.Fatal(err)
		}
	}
}
