package keeper

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pgmutex/pgmutex/engine"
)

// An Ask is a wish to hold a name.
type Ask struct {
	Name    string
	Holder  string // label
	Shared  bool
	Details map[string]string
	Timing  engine.Timing // StaleAfter, Heartbeat and AlertAfter of the hold
	Trust   time.Duration // how long one confirmation is good for
	Wait    bool          // does not overtake, and stands in line when busy
	Limit   time.Duration // on the wait, for those who watch; ctx is what ends it

	// Owner is what Lease.Owner returns. OnGrant is called with the lease before
	// anybody else can see it, OnEnd once when it ends, on the goroutine that
	// ends it.
	Owner   any
	OnGrant func(*Lease)
	OnEnd   func(*Ending)
}

// A Result is what came of an Ask. Exactly one of Lease, Busy, Unknown, Closed
// and Err is set, or none but Ctx when ctx ended before anything was asked.
type Result struct {
	Lease   *Lease
	Busy    bool          // certainly not granted, somebody else is there
	Rival   *engine.Rival // who, where known
	Place   int
	Unknown bool  // may be granted in the store, and is being cleaned up
	Err     error // the engine's reason, also beside Busy and Unknown
	Refused bool  // asking again the same way is no use
	Closed  bool
	Ctx     error // the cause of ctx's end, where that is why it is over
}

// maxAttempt bounds one call, so that a dead connection holds a waiter up no
// longer than that; the trust of a lease may be minutes.
const maxAttempt = 15 * time.Second

// grace is how long an attempt in flight may still say what it is when its
// caller's context ends. Without it, a wait that ran out would now and then
// end as unknown, just because a poll was on its way.
const grace = 50 * time.Millisecond

var errLate = errors.New("granted, but the answer came too late to be trusted")

// A look is one answer of the engine with its times.
type look struct {
	engine.Answer
	sent, arrived time.Duration
	lease         *Lease
	ended         bool // ctx ended or the client was closed first; nothing else is set
}

// try makes one attempt. It goes on by itself when ctx ends: a cancelled call
// would cost most engines their connection and leave in doubt what another moment
// makes certain. What it brings then is given back.
func (k *Keeper) try(ctx context.Context, ask *Ask, judge bool, take string, behind bool) look {
	term := engine.Term{
		Name:       ask.Name,
		ID:         ask.Holder + "~" + nonce(),
		Shared:     ask.Shared,
		StaleAfter: ask.Timing.StaleAfter,
	}
	req := engine.Request{
		Term:       term,
		Heartbeat:  ask.Timing.Heartbeat,
		AlertAfter: ask.Timing.AlertAfter,
		Details:    ask.Details,
		Wait:       ask.Wait,
		Judge:      judge,
		Take:       take,
		Behind:     behind,
		Own:        k.ghosts(ask.Name),
	}
	k.underway(1)
	// A waiter's later attempts have their own times, and mostly find the lock
	// held: they would only hold up those who do not.
	l, ok := k.send(ctx, req, ask.Trust, judge)
	if !ok {
		return look{ended: true}
	}
	defer k.underway(-1)
	if l.Outcome == engine.Granted && (ctx.Err() != nil || k.refusing()) {
		k.drop(term, l)
		return look{ended: true}
	}
	switch l.Outcome {
	case engine.Granted:
		term.Token = l.Token
		l.lease = k.grant(ctx, ask, term, l)
		if l.lease == nil {
			k.drop(term, l)
			if k.refusing() {
				return look{ended: true}
			}
			l.Outcome, l.Err = engine.Unknown, errLate
		}
	case engine.Unknown:
		k.drop(term, l)
	}
	return l
}

// send has one request answered, and is false when ctx has ended or the client was
// closed first. Whoever ends up with the answer sees it through, and only then is
// the attempt no longer under way: the caller if it is true.
func (k *Keeper) send(ctx context.Context, req engine.Request, trust time.Duration, together bool) (l look, ok bool) {
	if k.detached {
		call, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		defer context.AfterFunc(k.acquireFor.within(min(trust, maxAttempt)), cancel)()
		leave := func() { time.AfterFunc(grace, cancel) }
		defer context.AfterFunc(ctx, leave)()
		defer context.AfterFunc(k.refused, leave)()
		l = k.acquire(call, []engine.Request{req})[0]
		// An engine that has been closed meanwhile refuses.
		left := (ctx.Err() != nil || k.refusing()) && (l.Outcome == engine.Unknown || l.Outcome == engine.Failed)
		if left || k.refusing() && l.Outcome == engine.Refused {
			k.drop(req.Term, l)
			k.underway(-1)
			return look{}, false
		}
		return l, true
	}
	if together {
		if l, ok, sent := k.direct(ctx, req, trust); sent {
			return l, ok
		}
	}
	p := newPending(req, trust)
	if together {
		if !k.acquires.put(p) {
			k.underway(-1)
			return look{}, false
		}
		if l, ok = k.await(ctx, p); !ok || !l.Alone {
			return l, ok
		}
		p = newPending(req, trust)
	}
	if !k.spawn(func() {
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(trust, maxAttempt))
		defer cancel()
		defer context.AfterFunc(k.stop, cancel)()
		k.answered(p, k.acquire(call, []engine.Request{req})[0])
	}) {
		k.underway(-1)
		return look{}, false
	}
	return k.await(ctx, p)
}

// direct is send for a request that is all there is to ask for, of an engine whose
// answers the caller can read itself; not sent otherwise.
func (k *Keeper) direct(ctx context.Context, req engine.Request, trust time.Duration) (l look, ok, sent bool) {
	if k.sender == nil || !k.acquires.begin() {
		return look{}, false, false
	}
	b := k.begin(req)
	if b == nil {
		k.acquires.end()
		return look{}, false, false
	}
	limit := k.acquireFor.within(min(trust, maxAttempt))
	call, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(k.refused, cancel)()
	defer context.AfterFunc(limit, cancel)()
	if b.Await(call) {
		l = b.answer(call)
		k.acquires.end()
		return l, true, true
	}
	k.acquires.end()
	p := newPending(req, trust)
	k.seeThrough(limit, p, b)
	l, ok = k.await(ctx, p)
	return l, ok, true
}

// lone makes the call for one request of the batcher's, and is false where it cannot.
// It returns when the first answer is there: what comes after that may wait for a
// locked row again and again, and the requests of others do not wait for it.
func (k *Keeper) lone(p *pending) bool {
	if k.sender == nil {
		return false
	}
	b := k.begin(p.Request)
	if b == nil {
		return false
	}
	limit := k.acquireFor.within(min(p.trust, maxAttempt))
	if b.Await(limit) {
		k.answered(p, b.answer(limit))
	} else {
		k.seeThrough(limit, p, b)
	}
	return true
}

// begun is a request that has been sent.
type begun struct {
	engine.Sent
	k  *Keeper
	at time.Duration
}

// begin sends a request, or returns nil where that would take waiting.
func (k *Keeper) begin(req engine.Request) *begun {
	at := k.elapsed() // before anything leaves our hands, as in acquire
	if sent := k.sender.Send(req); sent != nil {
		return &begun{sent, k, at}
	}
	return nil
}

func (b *begun) answer(ctx context.Context) look {
	a := b.Answer(ctx)
	return look{Answer: a, sent: b.at, arrived: b.k.elapsed()}
}

// seeThrough has somebody wait for the whole answer, for whoever waits for p.
func (k *Keeper) seeThrough(limit context.Context, p *pending, b *begun) {
	rest := func() { k.answered(p, b.answer(limit)) }
	if !k.spawn(rest) {
		rest() // closing is over, and with it the time that the answer has
	}
}

// A pending request waits for its answer.
type pending struct {
	engine.Request
	trust  time.Duration
	answer chan look
	// Either its caller leaves or the answer is delivered, never both: who sets
	// this first decides.
	over atomic.Bool
}

func newPending(req engine.Request, trust time.Duration) *pending {
	return &pending{Request: req, trust: trust, answer: make(chan look, 1)}
}

// answered passes the answer on, or sees it through where nobody waits for it.
func (k *Keeper) answered(p *pending, l look) {
	if p.over.CompareAndSwap(false, true) {
		p.answer <- l
		return
	}
	k.drop(p.Term, l)
	k.underway(-1)
}

// busyForBoth reports whether l, the answer to one try, is as good for another one
// that was waiting to be sent: somebody held the name after both had been asked.
func busyForBoth(l look, asked, other *pending) bool {
	return l.Outcome == engine.Busy && !l.Alone && l.Holder != nil && !asked.Wait && !other.Wait &&
		asked.Term.Shared == other.Term.Shared && !slices.Contains(other.Own, l.Holder.ID)
}

// maxBatch bounds one call, so that its statement stays one of milliseconds.
const maxBatch = 256

// acquireBatch is acquire for requests of several callers. An answer after the
// trust of all of them is of no use to anybody, and a call that hangs holds up
// those who come after it.
func (k *Keeper) acquireBatch(batch []*pending) []look {
	bound := time.Duration(0)
	requests := make([]engine.Request, len(batch))
	for i, p := range batch {
		bound, requests[i] = max(bound, p.trust), p.Request
	}
	return k.acquire(k.acquireFor.within(min(bound, maxAttempt)), requests)
}

// acquire makes one call. Trust counts from before the request leaves our
// hands, so the clock is read first and nothing comes in between.
func (k *Keeper) acquire(ctx context.Context, batch []engine.Request) []look {
	looks := make([]look, len(batch))
	sent := k.elapsed()
	answers := k.engine.Acquire(ctx, batch)
	arrived := k.elapsed()
	for i := range looks {
		looks[i] = look{sent: sent, arrived: arrived}
		if i < len(answers) {
			looks[i].Answer = answers[i]
		}
	}
	return looks
}

// await waits for the answer until ctx ends or the client is closed, and a
// little longer. It is false when there was none by then, and the caller has left.
func (k *Keeper) await(ctx context.Context, p *pending) (l look, ok bool) {
	select {
	case l := <-p.answer:
		return l, true
	case <-ctx.Done():
	case <-k.refused.Done():
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case l := <-p.answer:
		return l, true
	case <-timer.C:
	}
	switch {
	case k.acquires.withdraw(p): // it was never sent
		k.underway(-1)
	case !p.over.CompareAndSwap(false, true):
		return <-p.answer, true // it came in this very moment
	}
	return look{}, false
}

// drop sees to it that nothing of an attempt stays in the store.
func (k *Keeper) drop(term engine.Term, l look) {
	switch l.Outcome {
	case engine.Granted:
		k.settle(&unsettled{term: term, until: l.arrived + term.StaleAfter})
	case engine.Unknown:
		k.settle(&unsettled{term: term, until: l.arrived + term.StaleAfter, ghost: true})
	}
}

// grant makes a lease of a grant; nil when its trust was over on arrival, or
// the client has been closed meanwhile.
func (k *Keeper) grant(ctx context.Context, ask *Ask, term engine.Term, look look) *Lease {
	l := &Lease{
		keeper:     k,
		term:       term,
		acquiredAt: look.AcquiredAt,
		granted:    look.arrived,
		trust:      ask.Trust,
		heartbeat:  ask.Timing.Heartbeat,
		alertAfter: ask.Timing.AlertAfter,
		values:     context.WithoutCancel(ctx),
		owner:      ask.Owner,
		onEnd:      ask.OnEnd,
		next:       look.sent + ask.Timing.Heartbeat,
		confirmed:  look.sent,
	}
	l.deadline.Store(int64(look.sent + ask.Trust))
	if l.left() <= 0 {
		return nil
	}
	ask.OnGrant(l)
	if !k.keep(l) {
		l.end(&Ending{Released: true})
		return nil
	}
	return l
}

// nonce returns what makes a term unique: 16 characters of base32.
func nonce() string { return strings.ToLower(rand.Text()[:16]) }
