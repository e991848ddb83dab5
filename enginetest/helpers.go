package enginetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex"
)

// A world is what one case runs in.
type world struct {
	*testing.T
	h Harness
}

func (w *world) can(a Ability) bool { return w.h.Abilities&a == a }

// A client is a client of the case, with everything that its hooks were told.
type client struct {
	*pgmutex.Client
	rec *recorder
}

// client opens a client with the engine's defaults.
func (w *world) client(holder string) *client {
	w.Helper()
	return w.clientWith(holder, pgmutex.Options{})
}

// mortal opens a client whose holds go stale soon.
func (w *world) mortal(holder string) *client {
	w.Helper()
	return w.clientWith(holder, pgmutex.Options{StaleAfter: w.h.Scale, ReleaseTimeout: w.h.Scale})
}

func (w *world) clientWith(holder string, opts pgmutex.Options) *client {
	w.Helper()
	rec := &recorder{}
	opts.HolderID = holder
	opts.Hooks = append([]pgmutex.Hooks{rec.hooks()}, opts.Hooks...)
	c, err := w.h.Client(w.T, &opts)
	if err != nil {
		w.Fatalf("open client %q: %v", holder, err)
	}
	w.closeAfter(c)
	return &client{c, rec}
}

// closeAfter closes a client with the case. Holds that the case left are left to
// go stale: nobody waits for their owners.
func (w *world) closeAfter(c *pgmutex.Client) {
	w.Cleanup(func() { _ = c.Close(ended()) })
}

// ended returns a context that has ended.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// take acquires name at the first try, or ends the case.
func (w *world) take(c *client, name string) *pgmutex.Hold {
	w.Helper()
	h, err := c.TryAcquire(w.Context(), name)
	if err != nil {
		w.Fatalf("%s: TryAcquire(%q): %v", c.HolderID(), name, err)
	}
	return h
}

// release gives back a hold, which must succeed.
func (w *world) release(h *pgmutex.Hold) {
	w.Helper()
	if err := h.Release(w.Context()); err != nil {
		w.Errorf("Release of %q: %v", h.Name(), err)
	}
}

// busy checks that name is held by somebody else, and returns who.
func (w *world) busy(c *client, name string) *pgmutex.HeldError {
	w.Helper()
	h, err := c.TryAcquire(w.Context(), name)
	if err == nil {
		w.Fatalf("%s: TryAcquire(%q) was granted, though the lock is held", c.HolderID(), name)
	}
	if h != nil {
		w.Errorf("TryAcquire returned a hold beside the error %v", err)
	}
	return w.held(err)
}

// held checks that an acquisition failed because the lock is held, and for no
// other reason.
func (w *world) held(err error) *pgmutex.HeldError {
	w.Helper()
	w.matches(err, pgmutex.ErrHeld)
	w.differs(err, pgmutex.ErrUnknown, pgmutex.ErrClosed, pgmutex.ErrLost, pgmutex.ErrNotHeld)
	var acquire *pgmutex.AcquireError
	if !errors.As(err, &acquire) || acquire.Reason == "" {
		w.Fatalf("want an *AcquireError with a reason, got %#v", err)
	}
	var held *pgmutex.HeldError
	if !errors.As(err, &held) {
		w.Fatalf("want a *HeldError in the error, got %v", err)
	}
	return held
}

// matches checks that err matches all targets.
func (w *world) matches(err error, targets ...error) {
	w.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			w.Errorf("want an error matching %q, got %v", target, err)
		}
	}
}

// differs checks that err matches none of the targets.
func (w *world) differs(err error, targets ...error) {
	w.Helper()
	for _, target := range targets {
		if errors.Is(err, target) {
			w.Errorf("want an error not matching %q, got %v", target, err)
		}
	}
}

func (w *world) check(ok bool, format string, args ...any) {
	w.Helper()
	if !ok {
		w.Errorf(format, args...)
	}
}

// must ends the case on an error.
func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func equal[T comparable](w *world, what string, got, want T) {
	w.Helper()
	if got != want {
		w.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// bound is how long the suite waits for what has to happen.
func (w *world) bound() time.Duration { return 30*time.Second + 10*w.h.Scale }

// until waits for a condition, which must come true.
func (w *world) until(what string, cond func() bool) {
	w.Helper()
	step := min(max(w.h.Scale/500, time.Millisecond), time.Second)
	for start := time.Now(); !cond(); time.Sleep(step) {
		if time.Since(start) > w.bound() {
			w.Fatalf("waited %s in vain for: %s", w.bound(), what)
		}
	}
}

// pass lets that much time pass, and checks meanwhile that nothing goes wrong.
func (w *world) pass(d time.Duration, still string, cond func() bool) {
	w.Helper()
	start := time.Now()
	w.until(fmt.Sprintf("%s to pass", d), func() bool {
		if !cond() {
			w.Fatalf("after %s, no longer true: %s", time.Since(start), still)
		}
		return time.Since(start) >= d
	})
}

// after waits for a channel to be closed.
func (w *world) after(done <-chan struct{}, what string) {
	w.Helper()
	timer := time.NewTimer(w.bound())
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		w.Fatalf("waited %s in vain for: %s", w.bound(), what)
	}
}

// isOver tells whether a channel is closed.
func isOver(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// A call is something under way on a goroutine of its own.
type call struct {
	done chan struct{}
	hold *pgmutex.Hold
	err  error
}

func start(fn func() error) *call {
	c := &call{done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.err = fn()
	}()
	return c
}

// acquiring starts Client.Acquire.
func acquiring(ctx context.Context, c *pgmutex.Client, name string) *call {
	var a *call
	ready := make(chan struct{})
	a = start(func() (err error) {
		<-ready
		a.hold, err = c.Acquire(ctx, name)
		return err
	})
	close(ready)
	return a
}

// waiting starts Client.Acquire and returns when the store has answered that the
// lock is held.
func (w *world) waiting(ctx context.Context, c *client, name string) *call {
	w.Helper()
	before := c.rec.count("Waiting")
	a := acquiring(ctx, c.Client, name)
	w.until(c.HolderID()+" to wait", func() bool { return c.rec.count("Waiting") > before || isOver(a.done) })
	if isOver(a.done) {
		w.Fatalf("%s: Acquire(%q) did not wait: %v", c.HolderID(), name, a.err)
	}
	return a
}

// limited makes a call whose wait for a held lock ends after a short limit, and
// returns both. Before the store has said that the lock is held, the outcome is
// rightly unknown: then it is called again with more time.
func (w *world) limited(call func(limit time.Duration) error) (limit time.Duration, err error) {
	limit = w.h.Scale / 10
	for {
		if err = call(limit); !errors.Is(err, pgmutex.ErrUnknown) || limit > w.h.Scale {
			return limit, err
		}
		limit *= 2
	}
}

// result waits for the call to end and returns its error.
func (w *world) result(c *call, what string) error {
	w.Helper()
	w.after(c.done, what)
	return c.err
}

// granted waits for an acquisition to succeed.
func (w *world) granted(a *call, who string) *pgmutex.Hold {
	w.Helper()
	if err := w.result(a, who+" to be granted the lock"); err != nil {
		w.Fatalf("%s: %v", who, err)
	}
	return a.hold
}

// unanswered keeps back the answers to c and tries, until a request was sent. A
// client may have closed its connection in between, on a slow machine, and a new
// one cannot be made without answers.
func (w *world) unanswered(c *client, try func(release func()) error) (release func(), err error) {
	w.Helper()
	for range 10 {
		w.release(w.take(c, "warm-up"))
		release = w.h.Faulter.HoldReplies(w.T, c.Client)
		if err = try(release); err == nil || errors.Is(err, pgmutex.ErrUnknown) {
			break
		}
		release()
	}
	return release, err
}

// free waits until the lock can be had at once, and gives it back.
func (w *world) free(c *client, name string) {
	w.Helper()
	w.until(fmt.Sprintf("%q to be free", name), func() bool {
		h, err := c.TryAcquire(w.Context(), name)
		if err != nil {
			w.matches(err, pgmutex.ErrHeld)
			return false
		}
		w.release(h)
		return true
	})
}

// lost waits for the hold to end by a loss, checks everything that tells of it,
// and returns the error that does.
func (w *world) lost(h *pgmutex.Hold) *pgmutex.LostError {
	w.Helper()
	w.after(h.Context().Done(), "the hold to end")
	cause := context.Cause(h.Context())
	var lost *pgmutex.LostError
	if !errors.As(cause, &lost) {
		w.Fatalf("cause of the context's end: want a *LostError, got %v", cause)
	}
	w.matches(lost, pgmutex.ErrLost, pgmutex.ErrNotHeld)
	w.differs(lost, pgmutex.ErrClosed, pgmutex.ErrHeld)
	equal(w, "name of the loss", lost.Name, h.Name())
	equal(w, "token of the loss", lost.Token, h.Token())
	w.check(!h.Held(), "Held is true after the loss")
	equal(w, "Err", h.Err(), error(lost))
	equal(w, "Heartbeat", h.Heartbeat(w.Context()), error(lost))
	w.check(!h.Deadline().After(time.Now()), "Deadline is in the future after the loss")
	return lost
}

// A note is one event of a client.
type note struct {
	kind string
	pgmutex.Event
}

// A recorder keeps what a client's hooks are told.
type recorder struct {
	mu    sync.Mutex
	notes []note
}

func (r *recorder) hooks() pgmutex.Hooks {
	on := func(kind string) func(context.Context, pgmutex.Event) {
		return func(_ context.Context, e pgmutex.Event) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.notes = append(r.notes, note{kind, e})
		}
	}
	return pgmutex.Hooks{
		Acquired: on("Acquired"), TakenOver: on("TakenOver"), Contended: on("Contended"),
		Waiting: on("Waiting"), Failed: on("Failed"), Heartbeat: on("Heartbeat"),
		Alert: on("Alert"), AlertCleared: on("AlertCleared"), Released: on("Released"),
		ReleaseUnconfirmed: on("ReleaseUnconfirmed"), Lost: on("Lost"),
	}
}

// of returns the events of the given kinds so far, in order.
func (r *recorder) of(kinds ...string) []note {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []note
	for _, n := range r.notes {
		for _, k := range kinds {
			if n.kind == k {
				found = append(found, n)
			}
		}
	}
	return found
}

func (r *recorder) count(kind string) int { return len(r.of(kind)) }

// event waits for the first event of that kind.
func (w *world) event(c *client, kind string) note {
	w.Helper()
	w.until("hook "+kind+" of "+c.HolderID(), func() bool { return c.rec.count(kind) > 0 })
	return c.rec.of(kind)[0]
}
