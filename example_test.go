package pgmutex_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/lease"
	"github.com/pgmutex/pgmutex/memory"
)

func report(context.Context) error { return nil }

// A job that cron starts on every host runs on one of them.
func Example_cron() {
	ctx := context.Background()
	locks, err := lease.Open(ctx, os.Getenv("DATABASE_URL"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)
	err = locks.TryDo(ctx, "nightly-report", report)
	if held := (*pgmutex.HeldError)(nil); errors.As(err, &held) {
		log.Printf("%s is at it since %s", held.Holder, held.Since)
		return
	}
	if err != nil {
		log.Fatal(err)
	}
}

// A handler waits two seconds for an order that somebody else is working on.
func Example_webHandler() {
	store := memory.New()
	locks, err := store.Open(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())

	patient := locks.With(pgmutex.AcquireOptions{Wait: 2 * time.Second})
	charge := func(ctx context.Context, id string) error { return nil }
	http.HandleFunc("POST /orders/{id}/charge", func(w http.ResponseWriter, r *http.Request) {
		name := "order:" + r.PathValue("id")
		if err := locks.CheckName(name); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		err := patient.Do(r.Context(), name, func(ctx context.Context) error {
			return charge(ctx, r.PathValue("id"))
		})
		switch {
		case err == nil:
		case errors.Is(err, pgmutex.ErrHeld):
			http.Error(w, "somebody else is charging this order", http.StatusConflict)
		case errors.Is(err, pgmutex.ErrLost):
			http.Error(w, "lost the lock half-way", http.StatusInternalServerError)
		default:
			http.Error(w, "no lock", http.StatusServiceUnavailable)
		}
	})
}

// One process of all leads; when it goes, another one takes over.
func ExampleClient_Run() {
	ctx, stop := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer stop()
	locks, err := memory.New().Open(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)

	lead := func(ctx context.Context) error {
		hold, _ := pgmutex.FromContext(ctx)
		fmt.Println("leading", hold.Name())
		for {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(10 * time.Millisecond):
			}
			if !hold.Held() { // before each step that nobody else may take
				return hold.Err()
			}
		}
	}
	err = locks.Run(ctx, "scheduler-leader", lead, &pgmutex.RunOptions{MaxPause: 10 * time.Second})
	fmt.Println(err)
	// Output:
	// leading scheduler-leader
	// context deadline exceeded
}

// Every host runs the migrations at its start; one of them at a time.
func Example_migration() {
	ctx := context.Background()
	locks, err := lease.Open(ctx, os.Getenv("DATABASE_URL"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)
	var migrations interface {
		Up(ctx context.Context) error
	}
	err = locks.Do(ctx, "app-migrations", func(ctx context.Context) error {
		return migrations.Up(ctx) // reads what is left to do only now
	})
	if err != nil {
		log.Fatal(err)
	}
}

// The bucket keeps the highest token that it has seen, so that a holder which
// was frozen cannot write over its successor's work.
func Example_fencing() {
	ctx := context.Background()
	locks, err := memory.New().Open(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)

	var highest int64
	put := func(token int64, body string) error {
		if token < highest {
			return fmt.Errorf("token %d is behind %d", token, highest)
		}
		highest = token
		return nil
	}

	frozen, err := locks.Acquire(ctx, "catalogue-export")
	if err != nil {
		log.Fatal(err)
	}
	frozen.Release(ctx)
	next, err := locks.Acquire(ctx, "catalogue-export")
	if err != nil {
		log.Fatal(err)
	}
	defer next.Release(ctx)

	fmt.Println(put(next.Token(), "new"))
	fmt.Println(put(frozen.Token(), "old"))
	// Output:
	// <nil>
	// token 1 is behind 2
}

// A service as its own code sees locks; *pgmutex.Client satisfies it.
type locker interface {
	TryDo(ctx context.Context, name string, fn func(ctx context.Context) error) error
}

// Code that takes locks is tested against the memory engine. Inside
// testing/synctest its hours pass in no time.
func Example_unitTest() {
	ctx := context.Background()
	store := memory.New()
	var locks locker
	client, err := store.Open(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	locks = client

	err = locks.TryDo(ctx, "rebuild", func(ctx context.Context) error {
		store.Lose("rebuild", pgmutex.LostTakenOver)
		<-ctx.Done() // the work is told
		return context.Cause(ctx)
	})
	lost := (*pgmutex.LostError)(nil)
	fmt.Println(errors.As(err, &lost), errors.Is(err, pgmutex.ErrLost))
	// Output: true true
}

// On a signal the work is asked to stop and has twenty seconds to do so.
func Example_gracefulShutdown() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	locks, err := lease.Open(ctx, os.Getenv("DATABASE_URL"), nil)
	if err != nil {
		log.Fatal(err)
	}
	work := func(ctx context.Context) error { <-ctx.Done(); return nil }
	var wg sync.WaitGroup
	for _, shard := range []string{"a", "b", "c"} {
		wg.Go(func() {
			if err := locks.Do(ctx, "shard:"+shard, work); err != nil {
				log.Print(err)
			}
		})
	}
	<-ctx.Done()
	grace, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := locks.Close(grace); err != nil {
		log.Print(err) // names what was still at work
	}
	wg.Wait()
}

// A hold as a handle, for work that is not one function.
func ExampleClient_Acquire() {
	ctx := context.Background()
	locks, err := memory.New().Open(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)

	hold, err := locks.Acquire(ctx, "inventory")
	if err != nil {
		log.Fatal(err)
	}
	_, err = locks.TryAcquire(ctx, "inventory")
	fmt.Println(errors.Is(err, pgmutex.ErrHeld), hold.Held())
	fmt.Println(hold.Release(ctx), hold.Held(), errors.Is(context.Cause(hold.Context()), pgmutex.ErrNotHeld))
	// Output:
	// true true
	// <nil> false true
}

// A function that runs on one host at a time, and is skipped on the others.
func ExampleClient_Singleton() {
	ctx := context.Background()
	locks, err := memory.New().Open(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)
	once := locks.Singleton("tidy", pgmutex.SkipIfHeld, func(ctx context.Context) error {
		fmt.Println("tidying")
		return nil
	})
	fmt.Println(once(ctx))
	// Output:
	// tidying
	// <nil>
}
