package gocron_test

import (
	"context"
	"log"
	"os"
	"time"

	"github.com/go-co-op/gocron/v2"

	pgmutexgocron "github.com/pgmutex/pgmutex/adapters/gocron"
	"github.com/pgmutex/pgmutex/lease"
)

func report() {}

// Every instance schedules the job, one runs it each time.
func ExampleNewLocker() {
	ctx := context.Background()
	locks, err := lease.Open(ctx, os.Getenv("DATABASE_URL"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)

	locker := pgmutexgocron.NewLocker(locks).WithMinHold(30 * time.Second)
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		log.Fatal(err)
	}
	defer scheduler.Shutdown()
	_, err = scheduler.NewJob(gocron.DurationJob(time.Minute), gocron.NewTask(report),
		gocron.WithName("report")) // the name of the lock
	if err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
}

// One instance of all runs every job.
func ExampleNewElector() {
	ctx := context.Background()
	locks, err := lease.Open(ctx, os.Getenv("DATABASE_URL"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)

	elector := pgmutexgocron.NewElector(ctx, locks, "scheduler-leader")
	defer elector.Close()
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	if err != nil {
		log.Fatal(err)
	}
	defer scheduler.Shutdown()
	scheduler.Start()
}
