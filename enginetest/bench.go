package enginetest

import (
	"context"
	"errors"
	"testing"

	"github.com/pgmutex/pgmutex"
)

// Benchmarks measures what is done most: a cycle of a free lock, a try of a held
// one, and the look at one's own hold. NewHarness is called once for each.
func Benchmarks(b *testing.B, newHarness func(b *testing.B) Harness) {
	open := func(b *testing.B, h Harness, holder string) *pgmutex.Client {
		c, err := h.Client(b, &pgmutex.Options{HolderID: holder})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = c.Close(ended()) })
		return c
	}
	b.Run("Cycle", func(b *testing.B) {
		c := open(b, newHarness(b), "a")
		ctx := context.Background()
		b.ReportAllocs()
		for b.Loop() {
			h, err := c.TryAcquire(ctx, "x")
			if err != nil {
				b.Fatal(err)
			}
			if err := h.Release(ctx); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("BusyTry", func(b *testing.B) {
		harness := newHarness(b)
		ctx := context.Background()
		if _, err := open(b, harness, "a").TryAcquire(ctx, "x"); err != nil {
			b.Fatal(err)
		}
		c := open(b, harness, "b")
		b.ReportAllocs()
		for b.Loop() {
			if _, err := c.TryAcquire(ctx, "x"); !errors.Is(err, pgmutex.ErrHeld) {
				b.Fatal(err)
			}
		}
	})
	b.Run("Held", func(b *testing.B) {
		h, err := open(b, newHarness(b), "a").TryAcquire(context.Background(), "x")
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if !h.Held() {
				b.Fatal(h.Err())
			}
		}
	})
}
