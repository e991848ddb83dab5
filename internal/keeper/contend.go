package keeper

import (
	"context"
	"time"

	"github.com/pgmutex/pgmutex/engine"
)

// A line is where the goroutines of this process wait for one name. Only the
// first of them contends in the store.
type line struct {
	waiting []chan struct{} // closed when it is their turn; the first is contending
	hint    chan struct{}   // capacity 1, for the one that contends
	holder  *Lease          // what the one that contended before has got, if it got it
	queued  bool            // others are before us in the store, which will tell us
}

// stand enters the line for name and returns at our turn. It is false when ctx
// ended or the client was closed before; the place is then given up.
func (k *Keeper) stand(ctx context.Context, name string) (hint <-chan struct{}, turn chan struct{}, ok bool) {
	turn = make(chan struct{})
	k.mu.Lock()
	l := k.lines[name]
	if l == nil {
		l = &line{hint: make(chan struct{}, 1)}
		k.lines[name] = l
	}
	l.waiting = append(l.waiting, turn)
	if len(l.waiting) == 1 {
		close(turn)
	}
	k.mu.Unlock()

	select {
	case <-turn:
		return l.hint, turn, true
	default:
	}
	select {
	case <-turn:
		return l.hint, turn, true
	case <-ctx.Done():
	case <-k.refused.Done():
	}
	k.leave(name, turn, nil)
	return nil, nil, false
}

// before returns, once, the lease that the goroutine got which contended for name
// before the one that does now, if it is held still.
func (k *Keeper) before(name string) *Lease {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.lines[name].holder
	k.lines[name].holder = nil
	if l == nil || l.removal != nil || l.ending.Load() != nil {
		return nil
	}
	return l
}

// leave gives up a place in the line, whether it was our turn or not. It is
// true when nobody of this process waits for the name any more.
func (k *Keeper) leave(name string, turn chan struct{}, got *Lease) (empty bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.lines[name]
	for i, w := range l.waiting {
		if w != turn {
			continue
		}
		l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
		if got != nil {
			l.holder = got
		}
		if i == 0 && len(l.waiting) > 0 {
			close(l.waiting[0])
		}
		break
	}
	if len(l.waiting) == 0 {
		delete(k.lines, name)
		return true
	}
	return false
}

// Freed implements engine.Sink.
func (k *Keeper) Freed(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if name != "" {
		k.lines[name].nudge()
		return
	}
	for _, l := range k.lines {
		l.nudge()
	}
}

func (l *line) nudge() {
	if l == nil {
		return
	}
	select {
	case l.hint <- struct{}{}:
	default:
	}
}

// Try makes one attempt that waits for nobody.
func (k *Keeper) Try(ctx context.Context, ask Ask) Result {
	start, began := k.elapsed(), time.Now()
	ask.Wait = false
	res := k.tryOnce(ctx, &ask)
	k.report(ctx, &ask, res, began, k.elapsed()-start)
	return res
}

func (k *Keeper) tryOnce(ctx context.Context, ask *Ask) Result {
	if res, over := k.over(ctx); over {
		return res
	}
	l := k.try(ctx, ask, true, "", false)
	if l.ended {
		return k.abandoned(ctx)
	}
	res := l.result()
	if res.Busy {
		k.observe(ctx, ask, Contended, l)
		k.rivalAlert(ctx, ask, res.Rival, ageOf(res.Rival))
	}
	return res
}

// abandoned is the Result of an attempt that nobody waited for any longer.
func (k *Keeper) abandoned(ctx context.Context) Result {
	if k.refusing() {
		return Result{Closed: true}
	}
	return Result{Unknown: true, Ctx: context.Cause(ctx)}
}

// Wait contends for the name until it is held, ctx ends, the client is closed
// or the engine refuses. A failure is returned at first contact; once the
// engine has said that somebody else holds the lock, failures are retried for
// as long as ctx allows.
func (k *Keeper) Wait(ctx context.Context, ask Ask) Result {
	start, began := k.elapsed(), time.Now()
	ask.Wait = true
	res := k.contend(ctx, &ask)
	k.report(ctx, &ask, res, began, k.elapsed()-start)
	return res
}

func (k *Keeper) contend(ctx context.Context, ask *Ask) Result {
	if res, over := k.over(ctx); over {
		return res
	}
	hint, turn, ok := k.stand(ctx, ask.Name)
	if !ok {
		res, _ := k.over(ctx)
		// Somebody of this very process is contending for it or holds it.
		res.Busy = !res.Closed
		return res
	}
	c := contender{keeper: k, ask: ask, hint: hint}
	res := c.run(ctx)
	empty := k.leave(ask.Name, turn, res.Lease)
	if empty && res.Lease == nil {
		// Whatever the store said last, an attempt may have put us into its line.
		k.leaveQueue(ctx, ask.Name)
	}
	return res
}

// over tells whether nothing may be asked any more.
func (k *Keeper) over(ctx context.Context) (Result, bool) {
	if k.refusing() {
		return Result{Closed: true}, true
	}
	if ctx.Err() != nil {
		return Result{Ctx: context.Cause(ctx)}, true
	}
	return Result{}, false
}

// leaveQueue gives up the place that this client has in the store's line, off
// the caller's path: its context has usually ended.
func (k *Keeper) leaveQueue(ctx context.Context, name string) {
	q, ok := k.engine.(engine.Queuer)
	if !ok {
		return
	}
	k.spawn(func() {
		k.mu.Lock()
		_, again := k.lines[name]
		k.mu.Unlock()
		if again {
			return // somebody of this process waits anew, in the same place
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.cfg.ReleaseTimeout)
		defer cancel()
		// Failing is harmless: the line passes over those who are gone.
		_ = q.Leave(ctx, []string{name})
	})
}

// A contender is one goroutine's wait for one name.
type contender struct {
	keeper *Keeper
	ask    *Ask
	hint   <-chan struct{}

	watch   watch
	busy    bool          // the engine has said so at least once
	rival   *engine.Rival // as of the last answer that named one
	place   int
	lastErr error // since the last answer that was none
	poll    time.Duration
	nudged  time.Duration // when a hint was last followed
}

func (c *contender) run(ctx context.Context) Result {
	k := c.keeper
	// The first attempt after a goroutine of this very client has got the lock
	// would be in vain, and there is one for each time that it changes hands.
	behind := k.before(c.ask.Name)
	for {
		l := k.try(ctx, c.ask, !c.watch.seen, c.watch.take(k.elapsed()), behind != nil)
		if behind != nil && l.Outcome == engine.Busy && l.Holder == nil {
			l.Holder = behind.rival()
		}
		behind = nil
		switch {
		case l.ended:
			return c.giveUp(k.abandoned(ctx))
		case l.Outcome == engine.Granted:
			return l.result()
		case l.Outcome == engine.Busy:
			c.sawBusy(ctx, l)
		case l.Outcome == engine.Refused || !c.busy:
			return l.result()
		default:
			c.lastErr = l.Err
		}
		if res, over := c.sleep(ctx, l); over {
			return res
		}
	}
}

// sawBusy takes in an answer that names a holder.
func (c *contender) sawBusy(ctx context.Context, l look) {
	k := c.keeper
	c.lastErr = nil
	c.place = l.Place
	k.mu.Lock()
	k.lines[c.ask.Name].queued = l.Hinted && l.Place > 1
	k.mu.Unlock()
	if l.Holder != nil {
		c.rival = l.Holder
	}
	if l.Holder != nil && l.Holder.Heartbeat != "" {
		c.watch.look(l.Holder, l.sent, l.arrived)
		k.rivalAlert(ctx, c.ask, l.Holder, c.watch.ageAt(l.arrived))
	}
	if !c.busy {
		c.busy = true
		k.observe(ctx, c.ask, Contended, l)
	}
	k.observe(ctx, c.ask, Waiting, l)
}

// maxPoll bounds the growing interval of the polls that only guard against
// hints that were lost.
const maxPoll = 10 * time.Second

// hintPause is the least time between two attempts made for hints: a flood of
// them, forged ones included, costs no more than that.
const hintPause = 10 * time.Millisecond

// sleep waits until it is worth trying again; over when it will never be.
func (c *contender) sleep(ctx context.Context, l look) (res Result, over bool) {
	k := c.keeper
	now := k.elapsed()
	at := now + c.interval(l)
	if c.watch.seen && l.Outcome == engine.Busy {
		if expiry := c.watch.expiry; expiry > now {
			at = min(at, expiry)
		}
		if alert := c.alertAt(); alert > now {
			at = min(at, alert)
		}
	}
	if l.RetryIn > 0 {
		at = min(at, now+l.RetryIn)
	}
	timer := time.NewTimer(max(at-now, 0))
	defer timer.Stop()
	nudged := false
	for {
		select {
		case <-timer.C:
		case <-c.hint:
			nudged = true
			// Right after the last one, a hint only makes the sleep shorter.
			if due := c.nudged + hintPause; c.nudged > 0 && k.elapsed() < due {
				timer.Reset(max(min(at, due)-k.elapsed(), 0))
				continue
			}
		case <-ctx.Done():
			return c.giveUp(Result{Ctx: context.Cause(ctx)}), true
		case <-k.refused.Done():
			return Result{Closed: true}, true
		}
		if nudged {
			c.nudged, c.poll = k.elapsed(), 0
		}
		return Result{}, false
	}
}

// interval returns how long to sleep if nothing else happens.
func (c *contender) interval(l look) time.Duration {
	base := c.keeper.cfg.PollInterval
	// A holder that cannot hint, or one that is stale and, for now, not to be
	// had, say because its row is locked.
	if l.Outcome == engine.Busy && (!l.Hinted || c.watch.take(c.keeper.elapsed()) != "") {
		c.poll = 0
		return jitter(base)
	}
	c.poll = min(max(2*c.poll, base), max(maxPoll, base))
	return jitter(c.poll)
}

// alertAt returns when the holder's silence is worth an alert.
func (c *contender) alertAt() time.Duration {
	return c.watch.arrived - c.watch.age + alertAfter(c.ask, c.rival)
}

// giveUp fills in what is known about the holder. An attempt that was under way
// when the wait ended is no reason to say less: what comes of it is given back.
func (c *contender) giveUp(res Result) Result {
	if res.Closed || !c.busy {
		return res
	}
	res.Unknown = false
	res.Busy, res.Rival, res.Place, res.Err = true, c.rival, c.place, c.lastErr
	return res
}

// result turns an answer into a Result.
func (l look) result() Result {
	switch l.Outcome {
	case engine.Granted:
		return Result{Lease: l.lease, Rival: l.TookOver}
	case engine.Busy:
		return Result{Busy: true, Rival: l.Holder, Place: l.Place}
	case engine.Unknown:
		return Result{Unknown: true, Err: l.Err}
	default:
		err := l.Err
		if err == nil {
			err = errUnanswered
		}
		return Result{Err: err, Refused: l.Outcome == engine.Refused}
	}
}
