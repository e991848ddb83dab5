package memory

import (
	"context"
	"errors"
	"time"

	"github.com/pgmutex/pgmutex/engine"
)

var (
	errNotStarted = errors.New("memory: the engine is not started")
	errStarted    = errors.New("memory: the engine is started already")
	errClosed     = errors.New("memory: the engine is closed")
)

// A process is one client's engine. Its fields belong to Store.mu.
type process struct {
	store *Store
	label string // of its latest term, which is what faults are set by
	sink  engine.Sink

	closed bool

	// pending counts the calls of sinks and the timers that run on this
	// process's behalf. Close waits for them on idle.
	pending int
	idle    chan struct{}
	alarms  map[*alarm]struct{}
}

var (
	_ engine.Engine    = (*process)(nil)
	_ engine.Guarder   = (*process)(nil)
	_ engine.Queuer    = (*process)(nil)
	_ engine.Inspector = (*process)(nil)
	_ engine.Forcer    = (*process)(nil)
)

// Describe implements [engine.Engine]. Any StaleAfter above zero is accepted.
func (p *process) Describe() engine.Description {
	return engine.Description{
		Name: "memory",
		Defaults: engine.Timing{
			Heartbeat:    10 * time.Second,
			AlertAfter:   30 * time.Second,
			StaleAfter:   600 * time.Second,
			PollInterval: 500 * time.Millisecond,
		},
		NameLimit:     nameLimit,
		Shared:        true,
		PerHoldTiming: true,
		Tokens:        true,
	}
}

// Start implements [engine.Engine]. The label is not known yet unless the
// process was opened with one, so faults of a holder touch only such a Start.
func (p *process) Start(ctx context.Context, sink engine.Sink) error {
	s := p.store
	s.mu.Lock()
	defer s.unlock()
	if p.sink != nil {
		return errStarted
	}
	if _, err := p.arrive(ctx, nil); err != nil {
		return err
	}
	if err := p.comeBack(ctx); err != nil {
		return err
	}
	if p.sink != nil { // a concurrent Start was faster
		return errStarted
	}
	p.sink = sink
	s.processes[p] = struct{}{}
	return nil
}

// Close implements [engine.Engine]. It ends blocked calls, which answer as if
// their context had ended, gives up the process's places in all lines, and
// returns when the last call of a sink and the last timer have ended, or with
// ctx's error. It talks to nobody, so faults do not touch it, and requests that
// are still delayed on their way never arrive.
func (p *process) Close(ctx context.Context) error {
	s := p.store
	s.mu.Lock()
	if p.closed {
		s.unlock()
		return nil
	}
	p.closed = true
	delete(s.processes, p)
	now := time.Now()
	for name := range s.lines {
		s.leave(now, name, p)
	}
	for a := range p.alarms {
		a.stop()
	}
	s.wake()
	var idle chan struct{}
	if p.pending > 0 {
		idle = make(chan struct{})
		p.idle = idle
	}
	s.unlock()
	if idle == nil {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// settle ends one pending thing.
func (p *process) settle() {
	p.pending--
	if p.pending == 0 && p.idle != nil {
		close(p.idle)
		p.idle = nil
	}
}

// An alarm is a timer that belongs to a process and is joined by its Close.
type alarm struct {
	process *process
	timer   *time.Timer
	over    bool
}

// after runs f under Store.mu once d has passed, unless the alarm is stopped
// before. Mu is held, which also keeps f from running before after returns.
func (p *process) after(d time.Duration, f func(now time.Time)) *alarm {
	a := &alarm{process: p}
	p.pending++
	p.alarms[a] = struct{}{}
	s := p.store
	a.timer = time.AfterFunc(d, func() {
		s.mu.Lock()
		if !a.over {
			a.over = true
			delete(p.alarms, a)
			f(time.Now())
		}
		s.unlock()
		s.mu.Lock()
		p.settle() // only now: the calls made by unlock are part of the alarm
		s.mu.Unlock()
	})
	return a
}

// stop makes sure that the alarm does nothing any more. One that has gone off
// and waits for mu settles by itself.
func (a *alarm) stop() {
	if a.over {
		return
	}
	a.over = true
	delete(a.process.alarms, a)
	if a.timer.Stop() {
		a.process.settle()
	}
}
