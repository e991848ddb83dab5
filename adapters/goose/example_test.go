package goose_test

import (
	"context"
	"fmt"
	"log"

	pgmutexgoose "github.com/pgmutex/pgmutex/adapters/goose"
	"github.com/pgmutex/pgmutex/memory"
)

// What a provider does with the locker that goose.WithLocker was given. The
// module goosetest, beside this package, has the whole of it with goose.
func ExampleLocker() {
	ctx := context.Background()
	locks, err := memory.New().Open(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)

	locker := pgmutexgoose.NewLocker(locks, "app-migrations")
	if err := locker.Lock(ctx, nil); err != nil {
		log.Fatal(err)
	}
	fmt.Println("migrating:", locks.IsHeld("app-migrations"))
	fmt.Println(locker.Unlock(ctx, nil))
	// Output:
	// migrating: true
	// <nil>
}
