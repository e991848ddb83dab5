package gocron_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/pgmutex/pgmutex"
	pgmutexgocron "github.com/pgmutex/pgmutex/adapters/gocron"
	"github.com/pgmutex/pgmutex/memory"
)

func open(t *testing.T, store *memory.Store) *pgmutex.Client {
	t.Helper()
	locks, err := store.Open(t.Context(), nil)
	must(t, err)
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	return locks
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// schedule starts a scheduler with one job, every second.
func schedule(t *testing.T, locker gocron.SchedulerOption, job func(), opts ...gocron.JobOption) gocron.Scheduler {
	t.Helper()
	s, err := gocron.NewScheduler(locker)
	must(t, err)
	_, err = s.NewJob(gocron.DurationJob(time.Second), gocron.NewTask(job), opts...)
	must(t, err)
	s.Start()
	return s
}

// TestFastJob: two schedulers 300 ms apart, a job of 10 ms every second, for 30
// seconds.
func TestFastJob(t *testing.T) {
	for _, c := range []struct {
		name        string
		minHold     time.Duration
		least, most int64
	}{
		{"with a minimum hold", 700 * time.Millisecond, 29, 31},
		{"without, as documented", 0, 58, 61},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.New()
				var runs, beside atomic.Int64
				job := func() {
					if beside.Add(1) > 1 {
						t.Error("two runs side by side")
					}
					runs.Add(1)
					time.Sleep(10 * time.Millisecond)
					beside.Add(-1)
				}
				var all []gocron.Scheduler
				for range 2 {
					locker := pgmutexgocron.NewLocker(open(t, store)).WithMinHold(c.minHold)
					all = append(all, schedule(t, gocron.WithDistributedLocker(locker), job, gocron.WithName("tick")))
					time.Sleep(300 * time.Millisecond)
				}
				time.Sleep(30 * time.Second)
				for _, s := range all {
					must(t, s.Shutdown())
				}
				if n := runs.Load(); n < c.least || n > c.most {
					t.Errorf("%d runs, want %d to %d", n, c.least, c.most)
				}
			})
		})
	}
}

// TestUnnamedJobs: two closures of one loop must not block each other, and are
// refused.
func TestUnnamedJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker := pgmutexgocron.NewLocker(open(t, memory.New()))
		var mu sync.Mutex
		var refusals []error
		s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
		must(t, err)
		note := gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) {
			mu.Lock()
			defer mu.Unlock()
			refusals = append(refusals, err)
		}))
		for i := range 2 {
			_, err := s.NewJob(gocron.DurationJob(time.Second), gocron.NewTask(func() { t.Error("job", i, "ran") }), note)
			must(t, err)
		}
		_, err = s.NewJob(gocron.DurationJob(time.Second), gocron.NewTask(named), note)
		must(t, err)
		s.Start()
		time.Sleep(1500 * time.Millisecond)
		must(t, s.Shutdown())
		mu.Lock()
		defer mu.Unlock()
		if len(refusals) != 3 {
			t.Fatalf("%d refusals, want 3", len(refusals))
		}
		for _, err := range refusals {
			if !strings.Contains(err.Error(), "gocron.WithName") {
				t.Errorf("got %v", err)
			}
		}
	})
}

func named() {}

// TestNames: functions' names are refused, users' are not.
func TestNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker := pgmutexgocron.NewLocker(open(t, memory.New()))
		refused := func(name string) bool {
			l, err := locker.Lock(t.Context(), name)
			if err == nil {
				must(t, l.Unlock(t.Context()))
			}
			return err != nil
		}
		for _, name := range []string{
			"main.report", "main.(*server).report-fm", "main.main.func1", "glob..func1",
			"example.com/app/jobs.Run.func2.1", "example.com/app/jobs.init.func3",
			"github.com/pgmutex/pgmutex.Open", "github.com/pgmutex/pgmutex/adapters/gocron_test.named",
			"github.com/go-co-op/gocron/v2.NewTask", "",
		} {
			if !refused(name) {
				t.Errorf("%q was not refused", name)
			}
		}
		for _, name := range []string{"report", "report.daily", "billing/close.month", "nightly: report", "v1.2", ".hidden", "mainframe.sync", "fun.func"} {
			if refused(name) {
				t.Errorf("%q was refused", name)
			}
		}
	})
}

// TestUnlockAfterShutdown: the scheduler unlocks with the job's context, which
// its shutdown has cancelled. Not in a bubble: gocron's shutdown polls without a
// pause while a job runs, so that a bubble's time would stand still.
func TestUnlockAfterShutdown(t *testing.T) {
	for _, minHold := range []time.Duration{0, time.Minute} {
		t.Run(minHold.String(), func(t *testing.T) {
			store := memory.New()
			locks := open(t, store)
			locker := pgmutexgocron.NewLocker(locks).WithMinHold(minHold)
			s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
			must(t, err)
			started := make(chan struct{})
			_, err = s.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), gocron.NewTask(func(ctx context.Context) {
				close(started)
				<-ctx.Done()
			}), gocron.WithName("job"))
			must(t, err)
			s.Start()
			<-started
			must(t, s.Shutdown())
			if want := minHold > 0; locks.IsHeld("job") != want {
				t.Errorf("held after shutdown: %t, want %t", !want, want)
			}
			begun := time.Now()
			must(t, locks.Close(t.Context()))
			if took := time.Since(begun); took > 10*time.Second {
				t.Errorf("Close took %s, waiting for the least time", took)
			}
			hold, err := open(t, store).TryAcquire(t.Context(), "job")
			must(t, err)
			must(t, hold.Release(t.Context()))
		})
	}
}

func TestLocker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		locks := open(t, store)
		plain := pgmutexgocron.NewLocker(locks)
		held := plain.WithMinHold(time.Minute)

		if _, err := plain.WithMinHold(-1).Lock(t.Context(), "x"); err == nil || !strings.Contains(err.Error(), "MinHold") {
			t.Errorf("negative: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		l, err := plain.Lock(ctx, "x")
		must(t, err)
		start := time.Now()
		// Also a client that is patient otherwise does not wait.
		patient := pgmutexgocron.NewLocker(open(t, store).With(pgmutex.AcquireOptions{Wait: time.Hour}))
		if _, err := patient.Lock(t.Context(), "x"); !errors.Is(err, pgmutex.ErrHeld) || time.Since(start) > time.Second {
			t.Errorf("busy: %v after %s", err, time.Since(start))
		}
		cancel()
		must(t, l.Unlock(ctx))
		if locks.IsHeld("x") {
			t.Error("held after Unlock")
		}

		start = time.Now()
		l, err = held.Lock(t.Context(), "x")
		must(t, err)
		time.Sleep(20 * time.Second)
		must(t, l.Unlock(t.Context()))
		h, err := open(t, store).Acquire(t.Context(), "x")
		must(t, err)
		if waited := time.Since(start).Round(time.Second); waited != time.Minute {
			t.Errorf("free after %s, want a minute", waited)
		}
		must(t, h.Release(t.Context()))

		l, err = held.Lock(t.Context(), "x")
		must(t, err)
		store.Lose("x", pgmutex.LostTakenOver)
		synctest.Wait()
		if err := l.Unlock(t.Context()); !errors.Is(err, pgmutex.ErrLost) {
			t.Errorf("after a loss: %v", err)
		}
	})
}

func TestElector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		a, b := open(t, store), open(t, store)
		first := pgmutexgocron.NewElector(t.Context(), a, "leader")
		defer first.Close()
		time.Sleep(time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		second := pgmutexgocron.NewElector(ctx, b, "leader")
		time.Sleep(time.Second)
		want := func(leads, follows *pgmutexgocron.Elector) {
			t.Helper()
			synctest.Wait()
			if err := leads.IsLeader(t.Context()); err != nil {
				t.Errorf("the leader: %v", err)
			}
			if err := follows.IsLeader(t.Context()); err == nil {
				t.Error("the other one leads as well")
			}
		}
		want(first, second)

		runs := make(map[string]int)
		var mu sync.Mutex
		var all []gocron.Scheduler
		for i, e := range []*pgmutexgocron.Elector{first, second} {
			all = append(all, schedule(t, gocron.WithDistributedElector(e), func() {
				mu.Lock()
				defer mu.Unlock()
				runs[fmt.Sprint(i)]++
			}))
		}
		time.Sleep(10500 * time.Millisecond)
		store.Lose("leader", pgmutex.LostReleased)
		time.Sleep(time.Minute) // whoever was waiting leads now
		want(second, first)
		for _, s := range all {
			must(t, s.Shutdown())
		}
		mu.Lock()
		if runs["0"] != 10 || runs["1"] < 58 {
			t.Errorf("runs are %v, want 10 and some 60", runs)
		}
		mu.Unlock()

		cancel()
		second.Close()
		second.Close()
		time.Sleep(time.Minute)
		want(first, second)
		must(t, a.Close(t.Context()))
		synctest.Wait() // Run has seen it
		if err := first.IsLeader(t.Context()); !errors.Is(err, pgmutex.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// TestElectorMistake: a name that cannot be is told, not retried for ever.
func TestElectorMistake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := pgmutexgocron.NewElector(t.Context(), open(t, memory.New()), "")
		synctest.Wait()
		if err := e.IsLeader(t.Context()); err == nil || !strings.Contains(err.Error(), "must not be empty") {
			t.Errorf("got %v", err)
		}
		e.Close()
	})
}
