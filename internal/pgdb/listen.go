package pgdb

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// ErrNoListen is matched by errors of a DB whose connections cannot listen: a
// pooler stands in between, or they are borrowed from a *sql.DB with another
// driver than pgx. It matches errors.ErrUnsupported.
var ErrNoListen = fmt.Errorf("notifications do not reach this client: %w", errors.ErrUnsupported)

// maxChannel is the longest name of a channel. The server cuts longer ones of
// LISTEN and refuses those of NOTIFY, so that they would never meet.
const maxChannel = 63

// A Listener is one interest in a channel. It is safe for concurrent use.
type Listener struct {
	ears    *ears
	channel string
	live    atomic.Bool

	mu   sync.Mutex // held during a call of wake
	wake func(payload string, reconnected bool)
	done bool
}

// Listen asks for the notifications of channel, from this call until Close of
// the listener. It does no I/O itself: a goroutine connects, over a connection
// that all listeners of the DB share, connects again after a failure, with
// growing and jittered pauses, and closes the connection some seconds after the
// last listener is gone.
//
// Wake is called for each notification with its payload. It is called with
// reconnected set, and no payload, as soon as notifications arrive for the first
// time and after each interruption: whatever happened before may have been
// missed, so everybody should look for himself. Calls of one wake come one at a
// time, from a goroutine that all listeners share: it must return at once, and
// must not call Close of its listener or of the DB.
//
// The error matches ErrNoListen if it is known that LISTEN cannot work. If that
// turns out only later, wake is called once more with reconnected set, and
// CanListen says so from then on.
func (db *DB) Listen(channel string, wake func(payload string, reconnected bool)) (*Listener, error) {
	switch {
	case channel == "" || len(channel) > maxChannel:
		return nil, fmt.Errorf("a channel has a name of 1 to %d bytes, this one has %d", maxChannel, len(channel))
	case !db.CanListen():
		return nil, ErrNoListen
	}
	l := &Listener{ears: db.ears, channel: channel, wake: wake}
	return l, db.ears.add(l)
}

// CanListen reports whether LISTEN may work. It is true until the contrary is
// known, which is when the first connection has been made.
func (db *DB) CanListen() bool {
	if _, ok := db.back.(ear); !ok {
		return false
	}
	f := db.last.Load()
	return f == nil || f.Direct
}

// Live reports whether notifications are arriving at the moment, so that there
// is no need to ask often.
func (l *Listener) Live() bool { return l.live.Load() }

// Close ends the interest. When it has returned, wake is not called any more.
// The second call does nothing.
func (l *Listener) Close() {
	l.mu.Lock()
	done := l.done
	l.done = true
	l.mu.Unlock()
	if !done {
		l.ears.remove(l)
	}
}

// call passes a notification on.
func (l *Listener) call(payload string, reconnected bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.done {
		l.wake(payload, reconnected)
	}
}

// ears keeps the listeners of a DB, and the goroutine that serves them while
// there are any.
type ears struct {
	db *DB

	mu        sync.Mutex
	listeners []*Listener
	running   bool
	changed   chan struct{} // holds a token after a change to listeners
	interrupt func()        // ends the wait for a notification; nil when there is none
}

func newEars(db *DB) *ears { return &ears{db: db, changed: make(chan struct{}, 1)} }

func (e *ears) add(l *Listener) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.running {
		if !e.db.begin() {
			return ErrClosed
		}
		e.running = true
		go func() {
			defer e.db.work.Done()
			e.serve()
		}()
	}
	e.listeners = append(e.listeners, l)
	e.poke()
	return nil
}

func (e *ears) remove(l *Listener) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l.live.Store(false)
	if i := slices.Index(e.listeners, l); i >= 0 {
		e.listeners = slices.Delete(e.listeners, i, i+1)
	}
	e.poke()
}

// poke makes the goroutine look at the listeners again. The caller holds mu.
func (e *ears) poke() {
	select {
	case e.changed <- struct{}{}:
	default:
	}
	if e.interrupt != nil {
		e.interrupt()
	}
}

// shut ends the goroutine; whoever closes the DB waits for it.
func (e *ears) shut() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, l := range e.listeners {
		l.live.Store(false)
	}
	e.listeners = nil
	e.poke()
}

// finish lets the goroutine end, unless somebody came at the last moment.
func (e *ears) finish() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.listeners) > 0 && !e.db.isClosing() {
		return false
	}
	e.running = false
	return true
}

// wanted returns the listeners that there are.
func (e *ears) wanted() []*Listener {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.listeners)
}

// heard passes a notification on. It runs in the goroutine that reads the
// connection.
func (e *ears) heard(channel, payload string) {
	for _, l := range e.wanted() {
		if l.channel == channel {
			l.call(payload, false)
		}
	}
}
