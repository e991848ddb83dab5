package monitor

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/pgmutex/pgmutex"
)

// lead tells, as long as this monitor holds the common lock. Its context ends with
// the hold or when the monitor is to stop; in the latter case the lock is kept
// until what was begun has been told.
func (m *Monitor) lead(ctx context.Context) error {
	m.metrics.active.Set(1)
	defer m.metrics.active.Set(0)
	m.cfg.Log.Info("this monitor tells alerts", "lock", m.cfg.Lock)
	m.change(m.watch.forget)
	hold, _ := pgmutex.FromContext(ctx)
	telling, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()

	var all sync.WaitGroup
	done := make(chan struct{}, together)
	for room := together; ; {
		for _, a := range m.toTell(room) {
			room--
			all.Go(func() {
				m.settle(telling, a)
				done <- struct{}{}
			})
		}
		select {
		case <-done:
			room++
		case <-m.wake:
		case <-ctx.Done():
			if hold.Err() != nil {
				stop() // somebody else tells from now on
			} else {
				last := time.AfterFunc(min(lastWords, time.Until(hold.Deadline())), stop)
				defer last.Stop()
			}
			all.Wait() // never blocked by done, which has room for all
			if hold.Err() != nil {
				m.cfg.Log.Info("this monitor no longer tells alerts", "lock", m.cfg.Lock)
			}
			return context.Cause(ctx)
		}
	}
}

// toTell takes up to n alerts on.
func (m *Monitor) toTell(n int) []*alert {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.watch.pending(time.Now())
	list = list[:min(n, len(list))]
	for _, a := range list {
		a.busy = true
	}
	return list
}

// settle brings one alert as far as it gets: what the store knows of it, the
// telling, the line in the store, and the same for its end. What fails for the
// store's sake is left for after the next look.
func (m *Monitor) settle(ctx context.Context, a *alert) {
	ok := m.steps(ctx, a)
	m.change(func() { a.busy, a.later = false, !ok })
}

func (m *Monitor) steps(ctx context.Context, a *alert) (ok bool) {
	if !a.asked {
		fired, err := m.line(ctx, firedPrefix+a.id)
		if err != nil {
			return false
		}
		cleared, err := m.line(ctx, clearedPrefix+a.id)
		if err != nil {
			return false
		}
		m.change(func() { a.recall(time.Now(), fired, cleared) })
	}
	if !m.tell(ctx, a, Fired, firedPrefix, &a.fired, &a.lineOf) {
		return false
	}
	var over bool
	m.change(func() { over = a.over })
	return !over || m.tell(ctx, a, Cleared, clearedPrefix, &a.cleared, &a.lineOver)
}

// tell tells an event of an alert, if that is left to do, and writes the line
// about it, likewise.
func (m *Monitor) tell(ctx context.Context, a *alert, event, prefix string, told, written *bool) bool {
	if !*told {
		if !m.send(ctx, a, event) {
			return false
		}
		m.change(func() { *told = true })
	}
	if !*written {
		if !m.write(ctx, prefix+a.id) {
			return false
		}
		m.change(func() { *written = true })
	}
	return true
}

// change does something to an alert. Only its own settle changes what has become
// of it, so that settle itself may read that without the mutex.
func (m *Monitor) change(what func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	what()
}

// line returns when a line was last written, zero for never.
func (m *Monitor) line(ctx context.Context, name string) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for past, err := range m.cfg.Client.History(ctx, name) {
		if err != nil {
			m.cfg.Log.Warn("cannot read what has been told, trying again", "error", err)
		}
		return past.EndedAt, err
	}
	return time.Time{}, nil
}

// write writes a line, by taking and giving back a lock of that name.
func (m *Monitor) write(ctx context.Context, name string) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := m.cfg.Client.TryDo(ctx, name, func(context.Context) error { return nil })
	if err != nil {
		m.cfg.Log.Warn("cannot write what has been told, trying again", "error", err)
	}
	return err == nil
}

// send tells everybody, and returns whether that was done: taken or given up on. It
// was not if this monitor had to stop telling meanwhile.
func (m *Monitor) send(ctx context.Context, a *alert, event string) bool {
	var n Notice
	m.change(func() { n = a.notice(event) })
	m.log(n)
	m.metrics.told(event)
	var all sync.WaitGroup
	for _, s := range m.cfg.Sinks {
		all.Go(func() {
			err := s.Send(ctx, n)
			if err != nil && ctx.Err() != nil {
				return // the next monitor tells it
			}
			m.metrics.sent(s.Name(), err)
			if err != nil {
				m.cfg.Log.Error("notification failed", "to", s.Name(), "id", n.ID, "event", event, "error", err)
			}
		})
	}
	all.Wait()
	return ctx.Err() == nil
}

// log is the first to be told. Messages and keys are constant.
func (m *Monitor) log(n Notice) {
	attrs := []slog.Attr{slog.String("id", n.ID), slog.String("lock", n.Lock), slog.String("holder", n.Holder)}
	if n.Event == Cleared {
		attrs = append(attrs, slog.String("reason", n.Reason))
		if n.NextHolder != "" {
			attrs = append(attrs, slog.String("next_holder", n.NextHolder))
		}
		m.cfg.Log.LogAttrs(context.Background(), slog.LevelInfo, "lock holder is no longer silent", attrs...)
		return
	}
	for _, k := range []string{"host", "pid", "program"} {
		if v := n.Details[k]; v != "" {
			attrs = append(attrs, slog.String(k, v))
		}
	}
	attrs = append(attrs, slog.Float64("age", n.HeartbeatAge), slog.Float64("threshold", n.Threshold),
		slog.Float64("remaining", n.Remaining), slog.Int("waiters", n.Waiters))
	m.cfg.Log.LogAttrs(context.Background(), slog.LevelWarn, "lock holder is silent", attrs...)
}
