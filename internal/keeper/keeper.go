package keeper

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pgmutex/pgmutex/engine"
)

// Config is what a Keeper needs; every field is required.
type Config struct {
	Engine         engine.Engine
	Elapsed        func() time.Duration // never goes back
	PollInterval   time.Duration
	ReleaseTimeout time.Duration
	Observe        func(Event) // returns at once, from any goroutine
}

// A Keeper keeps the leases of one client. It is an engine.Sink for its engine.
type Keeper struct {
	cfg     Config
	engine  engine.Engine
	elapsed func() time.Duration

	detached bool          // see engine.Description
	sender   engine.Sender // nil where the engine is none

	refused    context.Context // ends when new work is refused
	refuse     context.CancelFunc
	acquires   batcher[*pending, look]
	releases   batcher[*unsettled, engine.Removal]
	acquireFor limit // of calls
	releaseFor limit

	stop  context.Context
	halt  context.CancelFunc
	work  sync.WaitGroup
	spare atomic.Int32  // workers with nothing to do
	wake  chan struct{} // capacity 1, coalesces
	jobs  chan func()   // to a worker with nothing to do

	mu        sync.Mutex
	closed    bool
	running   bool                     // run has been started
	wakeAt    time.Duration            // when run looks next
	leases    map[string]*Lease        // not ended, by term ID
	unsettled map[string]*unsettled    // by term ID
	lines     map[string]*line         // by name
	alerted   map[string]*engine.Rival // by name: whom an alert stands for
	attempts  int                      // being made
	renewing  bool
	removing  bool
	patience  time.Duration // for one renewal call, as far as the last answers tell
	idle      chan struct{} // closed when nothing is left to wait for; nil while nobody waits
}

// never is later than every moment on the clock.
const never = time.Duration(1<<63 - 1)

// New returns a Keeper without starting anything.
func New(cfg Config) *Keeper {
	stop, halt := context.WithCancel(context.Background())
	refused, refuse := context.WithCancel(stop)
	k := &Keeper{
		cfg:       cfg,
		engine:    cfg.Engine,
		elapsed:   cfg.Elapsed,
		detached:  cfg.Engine.Describe().Detached,
		refused:   refused,
		refuse:    refuse,
		stop:      stop,
		halt:      halt,
		wake:      make(chan struct{}, 1),
		jobs:      make(chan func()),
		wakeAt:    never,
		leases:    map[string]*Lease{},
		unsettled: map[string]*unsettled{},
		lines:     map[string]*line{},
		alerted:   map[string]*engine.Rival{},
	}
	k.sender, _ = cfg.Engine.(engine.Sender)
	k.acquireFor.parent, k.releaseFor.parent = stop, stop //nolint:fatcontext // fields of a new Keeper
	turn := newTurn()
	k.acquires = batcher[*pending, look]{
		call: k.acquireBatch, deliver: k.answered, name: func(p *pending) string { return p.Term.Name }, shares: busyForBoth, lone: k.lone,
		most: maxBatch, turn: turn, spawn: k.spawn,
	}
	k.releases = batcher[*unsettled, engine.Removal]{
		call: k.releaseBatch, deliver: k.removed, name: func(u *unsettled) string { return u.term.Name },
		most: maxBatch, turn: turn, spawn: k.spawn,
	}
	return k
}

// schedule makes run look at the state no later than at. Called with mu held.
func (k *Keeper) schedule(at time.Duration) {
	if !k.running {
		if k.stop.Err() != nil {
			return
		}
		k.running = true
		k.work.Add(1)
		go func() {
			defer k.work.Done()
			k.run()
		}()
	}
	if at < k.wakeAt {
		k.wakeAt = at
		select {
		case k.wake <- struct{}{}:
		default:
		}
	}
}

// longestNap bounds how long run sleeps while anything is kept: after a
// suspend, a timer goes on with what was left of it before.
const longestNap = time.Second

// run is the owner of all timers.
func (k *Keeper) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(k.tick())
		select {
		case <-timer.C:
		case <-k.wake:
		case <-k.stop.Done():
			return
		}
	}
}

// tick does what is due and returns how long nothing else will be.
func (k *Keeper) tick() time.Duration {
	now := k.elapsed()
	var expired []*Lease
	var alerts []Event

	k.mu.Lock()
	next := never
	due := false
	for _, l := range k.leases {
		deadline := time.Duration(l.deadline.Load())
		if deadline <= now {
			expired = append(expired, l)
			continue
		}
		next = min(next, deadline)
		if alertAt := l.confirmed + l.alertAfter; !l.late {
			if alertAt <= now {
				l.late = true
				alerts = append(alerts, k.ownAlert(l, now))
			} else {
				next = min(next, alertAt)
			}
		}
		due = due || l.next <= now
		if !k.renewing {
			next = min(next, l.next)
		}
	}
	if due && !k.renewing {
		k.startRenewal(now)
	}
	next = min(next, k.removeDue(now))
	if len(k.leases) > 0 {
		next = min(next, now+longestNap)
	}
	k.wakeAt = next
	k.mu.Unlock()

	for _, l := range expired {
		l.expire()
	}
	for _, e := range alerts {
		k.cfg.Observe(e)
	}
	if next == never {
		return never
	}
	return max(next-k.elapsed(), 0)
}

// keep takes charge of a granted lease; false once the client refuses work.
// Both are decided under mu, so Close sees every lease that was kept.
func (k *Keeper) keep(l *Lease) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return false
	}
	k.leases[l.term.ID] = l
	k.patience = max(k.patience, 2*(l.granted-l.confirmed))
	k.schedule(l.next)
	return true
}

// ended is called once for each lease, right after its owner was told.
func (k *Keeper) ended(l *Lease, e *Ending) {
	k.mu.Lock()
	delete(k.leases, l.term.ID)
	k.checkIdle()
	alerted := l.late
	l.late = false
	k.mu.Unlock()
	if alerted {
		k.cfg.Observe(l.event(AlertCleared))
	}
	if e.Lost() {
		k.spawn(func() { k.explain(l, e) })
	}
}

// explainTimeout bounds how long the reason of a loss may still change.
const explainTimeout = time.Second

// explain asks the store why a lease was lost, and reports the loss with what
// is known then.
func (k *Keeper) explain(l *Lease, e *Ending) {
	held := k.elapsed() - l.granted
	ctx, cancel := context.WithTimeout(k.stop, explainTimeout)
	defer cancel()
	for _, s := range k.engine.Explain(ctx, []engine.Term{l.term}) {
		e.refine(s)
	}
	event := l.event(Lost)
	event.Took, event.Ending = held, e
	k.cfg.Observe(event)
}

// Lost implements engine.Sink.
func (k *Keeper) Lost(term engine.Term, reason engine.LossReason, by string, err error) {
	k.mu.Lock()
	l := k.leases[term.ID]
	k.mu.Unlock()
	if l != nil {
		l.end(&Ending{reason: reason, by: by, Err: err, gone: true})
	}
}

// Held returns the leases that are held, of the given name or of all when it
// is empty.
func (k *Keeper) Held(name string) []*Lease {
	k.mu.Lock()
	var held []*Lease
	for _, l := range k.leases {
		if name == "" || l.term.Name == name {
			held = append(held, l)
		}
	}
	k.mu.Unlock()
	n := 0
	for _, l := range held {
		if l.Held() {
			held[n] = l
			n++
		}
	}
	return held[:n]
}
