package memory_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/memory"
)

// The way that a user's test goes: real code, a bubble, a loss after minutes.
func TestClientLosesItsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		locks, err := store.Open(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer locks.Close(context.Background())
		time.AfterFunc(5*time.Minute+time.Second, func() { store.Lose("rebuild", pgmutex.LostTakenOver) })
		steps := 0
		err = locks.TryDo(t.Context(), "rebuild", func(ctx context.Context) error {
			for ctx.Err() == nil {
				steps++
				time.Sleep(time.Minute)
			}
			return context.Cause(ctx)
		})
		var lost *pgmutex.LostError
		if !errors.As(err, &lost) {
			t.Fatalf("got %v", err)
		}
		equal(t, "reason", lost.Reason(), pgmutex.LostTakenOver)
		equal(t, "steps", steps, 6)
	})
}

func TestExpiredClientIsTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		a, err := store.Open(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close(context.Background())
		b, err := store.Open(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close(context.Background())
		old, err := a.Acquire(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		store.Expire("x")
		h, err := b.TryAcquire(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		defer h.Release(context.Background())
		if h.Token() <= old.Token() {
			t.Errorf("token went from %d to %d", old.Token(), h.Token())
		}
		<-old.Context().Done()
		if err := old.Err(); !errors.Is(err, pgmutex.ErrLost) {
			t.Errorf("former holder: %v", err)
		}
	})
}
