package memory_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/memory"
)

// Code under test declares what it needs; the client satisfies it.
type locker interface {
	TryDo(ctx context.Context, name string, fn func(ctx context.Context) error) error
}

func rebuild(ctx context.Context, locks locker, steps int, step func()) error {
	return locks.TryDo(ctx, "rebuild", func(ctx context.Context) error {
		for range steps {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			step()
		}
		return nil
	})
}

// A job loses its lock halfway and must stop.
func ExampleStore_Lose() {
	ctx := context.Background()
	store := memory.New()
	locks, err := store.Open(ctx, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close(ctx)

	done := 0
	err = rebuild(ctx, locks, 10, func() {
		if done++; done == 3 {
			store.Lose("rebuild", pgmutex.LostTakenOver)
		}
	})

	var lost *pgmutex.LostError
	fmt.Println(errors.As(err, &lost), done)
	// Output: true 3
}

// Two clients of one store are two processes.
func ExampleStore_Open() {
	ctx := context.Background()
	store := memory.New()
	here, err := store.Open(ctx, &pgmutex.Options{HolderID: "here"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer here.Close(ctx)
	there, err := store.Open(ctx, &pgmutex.Options{HolderID: "there"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer there.Close(ctx)

	err = here.Do(ctx, "nightly-report", func(ctx context.Context) error {
		return there.TryDo(ctx, "nightly-report", func(context.Context) error {
			fmt.Println("never")
			return nil
		})
	})
	var held *pgmutex.HeldError
	if errors.As(err, &held) {
		fmt.Println("held by", held.Holder)
	}
	// Output: held by here
}
