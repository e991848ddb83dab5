package advisory

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/pgdb"
)

// A session is the one connection that all locks of a client are held on, and the
// goroutine that it belongs to: serve runs what others ask for, one after the
// other, and reads from the connection in between, so that the end of the
// session is seen when it happens. While it has nothing to do and does not read
// yet, it lends the connection to a caller, see borrow.
//
// It ends once and for all: by die, which tells everybody who held something, or
// by retiring when nothing is held or awaited. A new one is a new session.
type session struct {
	e *store
	w wire

	limit   int   // of locks, by the size of the server's lock table
	backend int64 // the server's process

	mu     sync.Mutex
	urgent []*op
	queue  []*op
	parked bool // serve reads
	idle   bool // serve does nothing yet: the connection can be borrowed
	loans  int  // how often it has been
	lent   bool // and is
	missed bool // serve waits for it
	over   bool
	ended  error         // why, with over
	wake   chan struct{} // capacity 1
	// The engine is being closed and the server does not answer.
	deserted bool
	lease    time.Duration // S of the settings in effect

	table table // guarded by mu for others than serve

	// Used by serve alone, or whoever has borrowed the connection.
	marks map[int64]string // names that are waited for, by id
	set   time.Duration    // the lease that the settings were made for
	label string           // and the holder's label
	sent  time.Time        // of the last statement
	used  time.Time        // when something was held, awaited or asked last

	gone chan struct{} // closed when serve has returned
}

// An op is something to be done on the session. Whoever asks may leave early.
type op struct {
	run   func()
	late  func() // instead of an answer, when nobody waits for it any more
	state atomic.Int32
	err   error // why it was not run
	done  chan struct{}
}

// States of an op. It is queued until it is either running or cancelled, and
// what runs either finishes first or is abandoned first.
const (
	queued = iota
	cancelled
	running
	abandoned
	finished
)

// busyPause is how long serve waits for the next op before it begins to read: a
// reader has to be interrupted for the next statement, which costs more than the
// statement of a caller in a loop. Where something is awaited it is shorter, since
// what is not read is not heard.
const (
	busyPause    = 5 * time.Millisecond
	waitingPause = time.Millisecond
)

var (
	errRetired  = errors.New("the session has been given up, since nothing was held")
	errNotAsked = errors.New("not asked")
)

func newSession(e *store, w wire) *session {
	return &session{
		e: e, w: w,
		lease: defaultLease,
		table: newTable(),
		wake:  make(chan struct{}, 1),
		marks: map[int64]string{},
		used:  time.Now(),
		gone:  make(chan struct{}),
	}
}

// submit puts an op into the queue; false when the session has ended.
func (s *session) submit(o *op, urgent bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.submitLocked(o, urgent)
}

func (s *session) submitLocked(o *op, urgent bool) bool {
	if s.over {
		return false
	}
	if urgent {
		s.urgent = append(s.urgent, o)
	} else {
		s.queue = append(s.queue, o)
	}
	if s.parked {
		s.w.interrupt()
		return true
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return true
}

// A task is an op with a result.
type task[T any] struct {
	op
	value T
}

// newTask makes an op of fn. What comes of one that its caller has left goes to
// late, which may be nil.
func newTask[T any](fn func() T, late func(T)) *task[T] {
	t := &task[T]{}
	t.done = make(chan struct{})
	t.run = func() { t.value = fn() }
	t.late = func() {
		if late != nil {
			late(t.value)
		}
	}
	return t
}

// wait waits for the result, or leaves when ctx ends: with errNotAsked where the
// op has not been begun and never will be, and otherwise with underway.
func (t *task[T]) wait(ctx context.Context) (result T, underway bool, err error) {
	select {
	case <-t.done:
		return t.value, false, t.err
	case <-ctx.Done():
	}
	switch {
	case t.state.CompareAndSwap(queued, cancelled):
		return result, false, fmt.Errorf("%w: %w", errNotAsked, context.Cause(ctx))
	case t.state.CompareAndSwap(running, abandoned):
		return result, true, context.Cause(ctx)
	}
	<-t.done
	return t.value, false, t.err
}

// ask runs fn on the session and returns its result, or leaves when ctx ends.
func ask[T any](ctx context.Context, s *session, urgent bool, fn func() T, late func(T)) (result T, underway bool, err error) {
	t := newTask(fn, late)
	if !s.submit(&t.op, urgent) {
		return result, false, errRetired
	}
	return t.wait(ctx)
}

// serve is the goroutine.
func (s *session) serve() {
	defer close(s.gone)
	for {
		o, err := s.next()
		switch {
		case err != nil:
			s.die(err)
			return
		case o == nil:
			if s.isOver() {
				return
			}
			continue
		}
		s.used = time.Now()
		if !o.state.CompareAndSwap(queued, running) && o.state.Load() == cancelled {
			continue
		}
		o.run()
		if !o.state.CompareAndSwap(running, finished) {
			o.late()
		}
		close(o.done)
		if s.isOver() {
			return
		}
	}
}

func (s *session) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// ending is why the session is over, nil while it is not.
func (s *session) ending() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		return nil
	}
	return s.ended
}

// next returns what is to be done, or nil after something has been done that is
// nobody's: a sign of life, or the end of a session that nobody needs. An error
// is the end of the session.
func (s *session) next() (*op, error) {
	if o := s.pop(); o != nil {
		return o, nil
	}
	if s.pause() {
		return s.pop(), nil
	}
	until, needed := s.due()
	s.mu.Lock()
	if len(s.urgent)+len(s.queue) > 0 {
		s.mu.Unlock()
		return s.pop(), nil
	}
	s.parked = true
	s.w.arm(until)
	s.mu.Unlock()
	err := s.w.rest()
	s.mu.Lock()
	s.parked = false
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if o := s.pop(); o != nil || time.Now().Before(until) {
		return o, nil
	}
	if needed {
		return nil, s.ping()
	}
	s.retire()
	return nil, nil
}

// pause waits for something to do, and lends the connection meanwhile. It is false
// when nothing has been done for a while.
func (s *session) pause() bool {
	length := busyPause
	if len(s.marks) > 0 {
		length = waitingPause
	}
	s.mu.Lock()
	s.idle = true
	s.mu.Unlock()
	timer := time.NewTimer(length)
	defer timer.Stop()
	for {
		expired := false
		select {
		case <-s.wake:
		case <-timer.C:
			expired = true
		}
		s.mu.Lock()
		left := length - time.Since(s.used)
		switch {
		case s.lent && expired:
			timer.Reset(length)
		case s.lent:
			s.missed = true // whoever has it wakes us again when it comes back
		case expired && left > 0 && !s.over:
			timer.Reset(left)
		default:
			s.idle = false
			s.mu.Unlock()
			return !expired
		}
		s.mu.Unlock()
	}
}

func (s *session) pop() *op {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range []*[]*op{&s.urgent, &s.queue} {
		if len(*q) > 0 {
			o := (*q)[0]
			(*q)[0] = nil
			*q = (*q)[1:]
			return o
		}
	}
	return nil
}

// due returns when something is to be done if nobody asks for anything: the next
// sign of life where something is held or awaited, the end otherwise. The pings
// that a hold is trusted by are the keeper's and come more often.
func (s *session) due() (at time.Time, needed bool) {
	if s.table.len() > 0 || len(s.marks) > 0 {
		return s.sent.Add(s.lease / 4), true
	}
	return s.used.Add(min(s.lease/3, linger)), false
}

// linger is how long a session is kept that nobody needs.
const linger = 5 * time.Second

// query runs a statement. The session has died when it returns an error and
// isOver.
func (s *session) query(st *statement, args ...any) ([]row, error) {
	rows, err := s.w.query(s.bound(), st, args...)
	if err != nil && s.w.closed() {
		s.die(err)
	}
	return rows, err
}

// bound is when the answer to a statement that is about to be sent would come too
// late.
func (s *session) bound() time.Time {
	s.sent = time.Now()
	return s.sent.Add(s.lease / 3 * 2)
}

// ping asks for a sign of life. An error is the end of the session.
func (s *session) ping() error {
	rows, err := s.query(s.e.sql.ping)
	switch {
	case err != nil && !s.isOver() && !pgdb.Sent(err):
		return nil // refused, say canceled by an administrator: that is a sign of life
	case err != nil:
		return err
	case len(rows) != 1 || number(rows[0][0]) != s.backend:
		return errPassedOn
	}
	return nil
}

// die ends the session and tells everybody who held something on it. It is
// called by serve's goroutine; the second call does nothing.
func (s *session) die(err error) {
	s.mu.Lock()
	if s.over {
		s.mu.Unlock()
		return
	}
	s.over, s.ended = true, fmt.Errorf("the lock session has ended: %w", err)
	lost := s.table.clear()
	deserted := s.deserted
	for _, h := range lost {
		s.e.endings.put(h.term.ID, s.ended) // before anybody can find the term gone
	}
	s.mu.Unlock()
	s.e.forget(s)
	// First of all: from now on the server may give the locks away.
	for _, h := range lost {
		s.e.lost(h.term, s.ended)
	}
	if deserted && len(lost) > 0 {
		s.w.abandon(s.lease)
	} else {
		s.w.kill()
	}
	s.finish()
	s.e.freed("")
}

// desert ends the session of an engine that is being closed whose server does not
// answer: as leave does where something is held, since a connection that is closed
// here may well be closed there.
func (s *session) desert() {
	s.mu.Lock()
	s.deserted = true
	s.mu.Unlock()
	s.w.forsake()
}

// retire ends a session that nobody needs, unless somebody has come.
func (s *session) retire() {
	s.mu.Lock()
	if s.over || len(s.urgent)+len(s.queue) > 0 {
		s.mu.Unlock()
		return
	}
	s.over, s.ended = true, errRetired
	s.mu.Unlock()
	s.e.forget(s)
	s.w.close()
	s.finish()
}

// finish fails what was still asked of a session that is over.
func (s *session) finish() {
	s.mu.Lock()
	left := append(s.urgent, s.queue...)
	s.urgent, s.queue = nil, nil
	s.mu.Unlock()
	for _, o := range left {
		if o.state.CompareAndSwap(queued, finished) || o.state.CompareAndSwap(running, finished) {
			o.err = s.ended
		}
		close(o.done)
	}
}

// leave ends the session when the engine is closed. What is held stays locked
// until the server ends the session for its silence: the work under it may go on
// for a moment.
func (s *session) leave() {
	s.mu.Lock()
	s.over, s.ended = true, errClosed
	held := s.table.clear()
	s.mu.Unlock()
	s.e.forget(s)
	if len(held) > 0 {
		s.w.abandon(s.lease)
	} else {
		s.w.close()
	}
	s.finish()
}

// own returns what this client holds of a name, in a way that excludes mode.
func (s *session) own(id int64, shared bool) *holding {
	h := s.table.holder(id)
	if h != nil && h.term.Shared && shared {
		return nil
	}
	return h
}

// standing tells whether a term is held on this session.
func (s *session) standing(term engine.Term) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table.term(term.ID) != nil
}
