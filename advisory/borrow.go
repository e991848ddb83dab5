package advisory

import (
	"context"
	"slices"
	"time"
)

// borrow takes over the connection for one statement of the caller's. To wake
// serve, and to be woken by it, costs more than such a statement costs the server.
// It is false unless serve has nothing to do and does not read.
func (s *session) borrow() (*pgWire, bool) {
	w, ok := s.w.(*pgWire)
	if !ok {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || s.lent || !s.idle || len(s.urgent)+len(s.queue) > 0 {
		return nil, false
	}
	s.lent, s.used = true, time.Now()
	s.loans++
	return w, true
}

// repay gives the connection back, with what serve has to do before anything else,
// or nil.
func (s *session) repay(o *op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lent = false
	if o != nil {
		s.urgent = slices.Insert(s.urgent, 0, o)
	}
	if s.missed || len(s.urgent)+len(s.queue) > 0 {
		s.missed = false
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// interrupts ends the reading of whoever has borrowed the connection when ctx ends.
// The stop that it returns need not have been in time: it is known by its number
// whose reading that is.
func (s *session) interrupts(ctx context.Context) (stop func() bool) {
	s.mu.Lock()
	loan := s.loans
	s.mu.Unlock()
	return context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.lent && s.loans == loan {
			s.w.interrupt()
		}
	})
}

// once runs one statement on a connection that has been borrowed, and what is to be
// done with the answer: here if that is simple, which means that it takes no other
// statement, and by serve otherwise. Like ask it leaves when ctx ends; serve then
// reads on.
func once[T any](ctx context.Context, s *session, w *pgWire, st *statement, args []any,
	simple func([]row) bool, then func([]row, error) T, late func(T)) (result T, underway bool, err error) {
	until := s.bound()
	var rows []row
	done := true
	failed := w.begin(until, st, args...)
	if failed == nil {
		stop := s.interrupts(ctx)
		rows, done, failed = w.finish(until, st)
		if !stop() {
			w.spoiled()
		}
	}
	judge := func() T {
		if failed != nil && w.closed() {
			s.die(failed)
		}
		return then(rows, failed)
	}
	switch {
	case !done:
		s.repay(&op{done: make(chan struct{}), late: func() {}, run: func() {
			for !done {
				w.resume(until)
				rows, done, failed = w.finish(until, st)
			}
			if value := judge(); late != nil {
				late(value)
			}
		}})
		return result, true, context.Cause(ctx)
	case failed == nil && simple(rows):
		result = then(rows, nil)
		s.repay(nil)
		return result, false, nil
	}
	rest := newTask(judge, late)
	rest.state.Store(running) // it has been asked: leaving now means underway
	s.repay(&rest.op)
	return rest.wait(ctx)
}
