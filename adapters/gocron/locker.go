package gocron

import (
	"context"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/pgmutex/pgmutex"
)

var (
	_ gocron.Locker  = (*Locker)(nil)
	_ gocron.Elector = (*Elector)(nil)
)

// A Locker is a gocron.Locker. The lock of a job has the name that
// gocron.WithName gave it.
//
// On its own a Locker excludes runs that overlap, and no more: a job that is done
// before the next process's timer fires runs there as well, since the timers of
// two processes never agree. [Locker.WithMinHold] makes it one run for all.
type Locker struct {
	client  *pgmutex.Client
	minHold time.Duration
}

// NewLocker returns a locker that takes its locks through client, which remains
// the caller's to close, after the scheduler's shutdown.
func NewLocker(client *pgmutex.Client) *Locker { return &Locker{client: client} }

// WithMinHold returns the same locker with a least time for which a lock is
// held, from its acquisition on: a run that is done before leaves it locked
// until then. Choose more than the timers of the processes may be apart, clock
// differences included, and less than the interval of the job, or the job skips
// its own next run. A negative time is returned as an error by the first Lock.
//
// Client.Close does not wait for that time: it gives such a lock back at once.
// A process that ends without it leaves the lock to go stale.
func (l *Locker) WithMinHold(d time.Duration) *Locker {
	c := *l
	c.minHold = d
	return &c
}

// Lock takes the lock as Client.TryAcquire does: it never waits, since a run
// that comes late would be one run too many. On failure, which makes gocron skip
// the run, it returns what TryAcquire returned and nothing is held.
//
// A job without a name is refused. gocron calls it by its function then, and
// functions change their names when code is moved, or share one, as the closures
// of one loop do; jobs would so lose their lock or skip each other's runs.
func (l *Locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	if l.minHold < 0 {
		return nil, fmt.Errorf("pgmutex: gocron: MinHold: %s is negative", l.minHold)
	}
	if isFunction(key) {
		return nil, fmt.Errorf("pgmutex: gocron: %q is the name of a function: give the job a name with gocron.WithName", key)
	}
	start := time.Now()
	hold, err := l.client.TryAcquire(ctx, key)
	if err != nil {
		return nil, err
	}
	return &lock{hold: hold, until: start.Add(l.minHold)}, nil
}

// A lock is a gocron.Lock.
type lock struct {
	hold  *pgmutex.Hold
	until time.Time
}

// Unlock gives the lock back as Hold.Release does, also with the context of a
// scheduler that has been shut down. Where the least time is not over it returns
// nil at once and leaves the rest to a goroutine that Client.Close joins, by
// waiting for the hold.
func (l *lock) Unlock(ctx context.Context) error {
	left := time.Until(l.until)
	if left <= 0 || l.hold.Err() != nil {
		return l.hold.Release(ctx)
	}
	go func() {
		timer := time.NewTimer(left)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-l.hold.Context().Done(): // lost, or the client is being closed
		}
		// What goes wrong now is for the hooks and the log.
		_ = l.hold.Release(context.WithoutCancel(ctx))
	}()
	return nil
}
