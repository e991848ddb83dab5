package goose_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgmutex/pgmutex"
	pgmutexgoose "github.com/pgmutex/pgmutex/adapters/goose"
	"github.com/pgmutex/pgmutex/memory"
)

func open(t *testing.T, store *memory.Store) *pgmutex.Client {
	t.Helper()
	locks, err := store.Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	return locks
}

func TestLocker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		locks := open(t, store)
		locker := pgmutexgoose.NewLocker(locks, "migrations")
		if err := locker.Unlock(t.Context(), nil); !errors.Is(err, pgmutex.ErrNotHeld) {
			t.Errorf("unlock of nothing: %v", err)
		}

		ctx, cancel := context.WithCancel(t.Context())
		if err := locker.Lock(ctx, nil); err != nil {
			t.Fatal(err)
		}
		cancel()
		time.Sleep(time.Hour) // the lock is kept, whatever became of ctx
		if !locks.IsHeld("migrations") {
			t.Error("not held after an hour")
		}
		patient, done := context.WithTimeout(t.Context(), time.Minute)
		defer done()
		if err := pgmutexgoose.NewLocker(open(t, store), "migrations").Lock(patient, nil); !errors.Is(err, pgmutex.ErrHeld) {
			t.Errorf("second process: %v", err)
		}
		if err := locker.Lock(patient, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("second provider: %v", err)
		}
		if err := locker.Unlock(ctx, nil); err != nil {
			t.Errorf("unlock with a cancelled context: %v", err)
		}
		if err := locker.Unlock(ctx, nil); !errors.Is(err, pgmutex.ErrNotHeld) {
			t.Errorf("second unlock: %v", err)
		}
		if err := locker.Lock(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if err := locker.Unlock(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	})
}

// TestLockerAfterLoss: the loss is told to whom it happened, and the lock of
// who came next is left alone.
func TestLockerAfterLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		locks := open(t, store)
		locker := pgmutexgoose.NewLocker(locks, "migrations")
		if err := locker.Lock(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		store.Lose("migrations", pgmutex.LostTakenOver)
		next := make(chan error)
		go func() { next <- locker.Lock(t.Context(), nil) }()
		synctest.Wait()
		var lost *pgmutex.LostError
		if err := locker.Unlock(t.Context(), nil); !errors.As(err, &lost) {
			t.Errorf("got %v", err)
		}
		if err := <-next; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !locks.IsHeld("migrations") {
			t.Error("the next one does not hold the lock")
		}
		if err := locker.Unlock(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	})
}

func TestLockerWaitsAsLongAsTheClientSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		hold, err := open(t, store).Acquire(t.Context(), "migrations")
		if err != nil {
			t.Fatal(err)
		}
		defer hold.Release(context.Background())
		start := time.Now()
		patient := open(t, store).With(pgmutex.AcquireOptions{Wait: 90 * time.Second})
		err = pgmutexgoose.NewLocker(patient, "migrations").Lock(t.Context(), nil)
		if waited := time.Since(start); !errors.Is(err, pgmutex.ErrHeld) || waited != 90*time.Second {
			t.Errorf("%v after %s", err, waited)
		}
	})
}

// TestNotInsideDo: documented, and answered at once rather than never.
func TestNotInsideDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := open(t, memory.New())
		locker := pgmutexgoose.NewLocker(locks, "migrations")
		err := locks.Do(t.Context(), "migrations", func(ctx context.Context) error { return locker.Lock(ctx, nil) })
		if !errors.Is(err, pgmutex.ErrHeld) {
			t.Errorf("got %v", err)
		}
	})
}
