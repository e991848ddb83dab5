package lease

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/pgdb"
)

const (
	// Notifications lead to one sweep each, sweepBurst of them at once and then
	// one every sweepEvery: anybody may send any number, and one that is meant
	// must not be late.
	sweepEvery = 5 * time.Millisecond
	sweepBurst = 10

	// listenOn is how much longer than anybody waits we listen: where a lock goes
	// from one goroutine of this client to the next, or to and fro between clients,
	// LISTEN and UNLISTEN each time would cost as much as all else.
	listenOn = time.Second

	// wakeTries is how often an offer that met a locked row is tried.
	wakeTries = 3
)

// line is this client's part in the waiting lines: the names that it waits for,
// the notifications that it listens to, and the offers that it owes to others
// after its releases. One goroutine listens to the outcome of both.
//
// Whoever releases watches over the offer as well: if it is not answered within
// its second, the next in the line gets one. If the engine is closed before that,
// it wakes the second in the line instead, who then watches.
type line struct {
	s    *store
	db   *pgdb.DB
	sink engine.Sink

	// What runs in the background ends with life, which close bounds.
	life context.Context //nolint:containedctx // of the goroutine, not of a call
	end  context.CancelFunc
	done chan struct{}
	kick chan struct{} // something below changed; has room for one

	mu      sync.Mutex
	names   map[string]struct{}  // that we wait for
	ear     *pgdb.Listener       // while there are any, and a little longer
	deafAt  time.Time            // when that is over, while there are none
	heard   bool                 // a notification has come
	again   bool                 // the listening connection is new
	spent   time.Time            // the sweeps until now are paid for until then, see take
	due     map[string]time.Time // names to offer, and when
	now     []string             // those that are being offered
	closing bool
}

func newLine(s *store, db *pgdb.DB, sink engine.Sink) *line {
	l := &line{
		s: s, db: db, sink: sink,
		done:  make(chan struct{}),
		kick:  make(chan struct{}, 1),
		names: map[string]struct{}{},
		due:   map[string]time.Time{},
	}
	l.life, l.end = context.WithCancel(context.Background())
	go l.run()
	return l
}

// joining notes that we are about to wait for name and reports whether we will
// hear of it. It comes before the place in the line is taken: a notification
// that precedes LISTEN is made up for by the one that reports the connection.
func (l *line) joining(name string) (listening bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing {
		return false
	}
	l.names[name] = struct{}{}
	if l.ear == nil && !l.s.set.pollOnly && l.db.CanListen() {
		ear, err := l.db.Listen(l.s.channel, l.hear)
		if err != nil {
			l.s.log.Debug("pgmutex: cannot listen, so waiters poll", "error", err)
			return false
		}
		l.ear = ear
	}
	return l.ear != nil && l.ear.Live()
}

// waits reports whether we may have a place in the line of name.
func (l *line) waits(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.names[name]
	return ok
}

// left notes that we no longer wait for name, and reports whether we did.
func (l *line) left(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.names[name]; !ok {
		return false
	}
	delete(l.names, name)
	if len(l.names) == 0 && l.ear != nil {
		l.deafAt = time.Now().Add(listenOn)
		l.poke()
	}
	return true
}

// hear takes a notification, whose text means nothing. Where only one name can be
// meant, it is told here and now: each switch to another goroutine is a part of
// the hand-over.
func (l *line) hear(_ string, reconnected bool) {
	l.mu.Lock()
	if len(l.names) == 1 && !reconnected && !l.heard && !l.again && l.afford(time.Now()) == 0 {
		var only string
		for name := range l.names {
			only = name
		}
		l.mu.Unlock()
		l.sink.Freed(only)
		return
	}
	l.heard = l.heard || !reconnected
	l.again = l.again || reconnected
	l.mu.Unlock()
	l.poke()
}

// afford pays for a sweep, or returns how long there is no credit for one: each
// costs sweepEvery, and credit is given for sweepBurst. Called with mu held.
func (l *line) afford(now time.Time) time.Duration {
	if l.spent.Before(now) {
		l.spent = now
	}
	if rest := l.spent.Sub(now) - (sweepBurst-1)*sweepEvery; rest > 0 {
		return rest
	}
	l.spent = l.spent.Add(sweepEvery)
	return 0
}

// wake offers name to the first in its line, off the caller's path.
func (l *line) wake(names ...string) {
	l.mu.Lock()
	for _, name := range names {
		l.due[name] = time.Time{}
	}
	l.mu.Unlock()
	l.poke()
}

func (l *line) poke() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// run is the goroutine.
func (l *line) run() {
	defer close(l.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		todo := l.take()
		if todo.ear != nil {
			todo.ear.Close()
		}
		if todo.sweep {
			l.sweep(todo.all)
		}
		for _, name := range todo.offers {
			l.offer(name)
		}
		l.offered()
		if todo.closing {
			l.handOn()
			return
		}
		timer.Reset(todo.next)
		select {
		case <-timer.C:
		case <-l.kick:
		}
	}
}

// todo is what the goroutine has to do, and how long it may rest then.
type todo struct {
	sweep, all bool
	offers     []string
	ear        *pgdb.Listener // that nobody needs any more
	closing    bool
	next       time.Duration
}

func (l *line) take() todo {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := todo{closing: l.closing, next: time.Hour}
	now := time.Now()
	if l.heard || l.again {
		// What else is heard until it can be afforded is the same sweep. Offers do
		// not wait for it.
		if t.next = l.afford(now); t.next == 0 {
			t.next = time.Hour
			t.sweep, t.all = true, l.again
			l.heard, l.again = false, false
		}
	}
	if l.ear != nil && len(l.names) == 0 {
		if wait := l.deafAt.Sub(now); wait > 0 {
			t.next = min(t.next, wait)
		} else {
			t.ear, l.ear = l.ear, nil
		}
	}
	for name, at := range l.due {
		if wait := at.Sub(now); wait > 0 {
			t.next = min(t.next, wait)
			continue
		}
		delete(l.due, name)
		t.offers = append(t.offers, name)
	}
	l.now = t.offers
	return t
}

// owes reports whether this client is about to offer name to others who wait for
// it, or watches over an offer that it has made.
func (l *line) owes(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, due := l.due[name]
	return due || slices.Contains(l.now, name)
}

func (l *line) offered() {
	l.mu.Lock()
	l.now = nil
	l.mu.Unlock()
}

// offer makes the offer that is due, and sees to the next one.
func (l *line) offer(name string) {
	for attempt := range wakeTries {
		o, found, err := l.s.makeOffer(l.life, l.db, name, false)
		if err == nil {
			if found {
				l.watch(name, o.left+afterOffer)
			}
			return
		}
		if pgdb.Classify(err) != pgdb.RowLocked || !pause(l.life, attempt) {
			// The release has succeeded whatever becomes of this: the waiters
			// find out by polling.
			l.s.log.Warn("pgmutex: could not wake a waiter", "lock", name, "error", err)
			return
		}
	}
}

// watch looks at an offer again when it has ended. A second wake in between is
// for another release, and starts anew.
func (l *line) watch(name string, after time.Duration) {
	l.mu.Lock()
	if _, sooner := l.due[name]; !sooner {
		l.due[name] = time.Now().Add(after)
	}
	l.mu.Unlock()
	l.poke() // the rest was reckoned before this was due
}

// sweep tells the client which names are worth an attempt.
func (l *line) sweep(all bool) {
	if all {
		l.sink.Freed("")
		return
	}
	l.mu.Lock()
	names := make([]string, 0, len(l.names))
	for name := range l.names {
		names = append(names, name)
	}
	l.mu.Unlock()
	if len(names) > 1 {
		// The notification names none, so that nobody reads names off channels:
		// the table tells.
		found, err := query(l.life, l.db, pgdb.Work, l.s.sql.offered, []any{l.s.channel}, scanString)
		if err == nil {
			names = found
		}
	}
	for _, name := range names {
		l.sink.Freed(name)
	}
}

// handOn wakes, for each offer that is still being watched, the second in the
// line, who will see whether it is answered.
func (l *line) handOn() {
	l.mu.Lock()
	names := make([]string, 0, len(l.due))
	for name := range l.due {
		names = append(names, name)
	}
	l.mu.Unlock()
	for _, name := range names {
		_, err := query(l.life, l.db, pgdb.Work, l.s.sql.nudge, []any{name}, scanString)
		if err != nil {
			l.s.log.Warn("pgmutex: could not wake a waiter", "lock", name, "error", err)
			return
		}
	}
}

// close makes the offers that are due, hands on the watch, and joins the
// goroutine. When ctx ends first, what is left is left to the waiters' polling.
func (l *line) close(ctx context.Context) {
	l.mu.Lock()
	l.closing = true
	ear := l.ear
	l.ear = nil
	l.mu.Unlock()
	if ear != nil {
		ear.Close()
	}
	l.poke()
	stop := context.AfterFunc(ctx, l.end)
	<-l.done
	stop()
	l.end()
}
