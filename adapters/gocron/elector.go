package gocron

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/pgmutex/pgmutex"
)

// An Elector is a gocron.Elector: of all processes with an elector of one name
// the one that holds that lock leads.
type Elector struct {
	name   string
	stop   context.CancelFunc
	done   chan struct{}
	hold   atomic.Pointer[pgmutex.Hold]
	failed error // set before done is closed
}

// NewElector returns an elector that at once starts to contend for the lock name
// through client, as Client.Run does, and goes on doing so whatever happens
// until ctx ends, Close is called or client is closed; it then gives the lock
// back, and another process leads. A mistake that no second try mends, such as a
// bad name, is returned by IsLeader.
//
// ctx should be that of the program, and client remains the caller's to close,
// after the scheduler's shutdown.
func NewElector(ctx context.Context, client *pgmutex.Client, name string) *Elector {
	ctx, cancel := context.WithCancel(ctx)
	e := &Elector{name: name, stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(e.done)
		defer cancel()
		e.failed = client.Run(ctx, name, e.lead, nil)
	}()
	return e
}

// lead is the leader's work, which is not here but in the jobs.
func (e *Elector) lead(ctx context.Context) error {
	hold, _ := pgmutex.FromContext(ctx)
	e.hold.Store(hold)
	defer e.hold.Store(nil)
	<-ctx.Done()
	return context.Cause(ctx)
}

var errNotLeader = errors.New("another process leads, or none yet")

// IsLeader returns nil if this process leads at this moment: its hold is asked,
// which costs no I/O and is right after a pause of the process, too. It does not
// wait. An error is why jobs do not run here.
func (e *Elector) IsLeader(context.Context) error {
	select {
	case <-e.done:
		return fmt.Errorf("pgmutex: gocron: elector of %q has ended: %w", e.name, e.failed)
	default:
	}
	hold := e.hold.Load()
	if hold == nil {
		return fmt.Errorf("pgmutex: gocron: not the leader of %q: %w", e.name, errNotLeader)
	}
	if hold.Context().Err() != nil {
		return fmt.Errorf("pgmutex: gocron: no longer the leader of %q: %w", e.name, context.Cause(hold.Context()))
	}
	if err := hold.Err(); err != nil {
		return fmt.Errorf("pgmutex: gocron: no longer the leader of %q: %w", e.name, err)
	}
	return nil
}

// Close resigns: it returns when the lock has been given back, or that goes on in
// the background, and nothing of the elector runs any more. Jobs that run are
// not waited for: shut the scheduler down first. Further calls do nothing.
func (e *Elector) Close() {
	e.stop()
	<-e.done
}
