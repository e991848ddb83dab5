//go:build faults

package faults

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/internal/faultconn"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// minutes is for what must not be covered up by a session that ends by itself.
func minutes(o *pgmutex.Options) { o.StaleAfter, o.Heartbeat = 10*time.Minute, 500*time.Millisecond }

// Row 1: 32 contenders of 8 sessions, 300 times: exactly one gets the lock.
func TestAdvisoryRow01OneWinner(t *testing.T) {
	t.Parallel()
	w := newSessions(t, nil)
	var clients []*client
	for i := range 8 {
		clients = append(clients, w.client(fmt.Sprintf("c%d", i), minutes))
	}
	for round := range 300 {
		name := fmt.Sprintf("job-%d", round%3)
		start, won := make(chan struct{}), make(chan *holding, 32)
		var all sync.WaitGroup
		for i := range 32 {
			all.Go(func() {
				<-start
				h, err := clients[i%8].take(t.Context(), name, false)
				switch {
				case err == nil:
					won <- h
				case !errors.Is(err, pgmutex.ErrHeld):
					w.violation("acquire: %v", err)
				}
			})
		}
		close(start)
		all.Wait()
		if len(won) != 1 {
			t.Fatalf("round %d has %d winners", round, len(won))
		}
		pgtest.Must(t, (<-won).end(t.Context()))
	}
	w.judge(demand{"acquire granted", "acquire held"})
}

// Row 5: a grant whose reply comes after its trust has passed is none; one that
// comes before counts from the request.
func TestAdvisoryRow05DelayedReply(t *testing.T) {
	t.Parallel()
	for _, delay := range []time.Duration{trusted / 4, trusted * 3 / 4, trusted + 100*time.Millisecond, session + 300*time.Millisecond} {
		t.Run(delay.String(), func(t *testing.T) {
			t.Parallel()
			w := newSessions(t, nil)
			slow, rival := w.client("slow"), w.client("rival")
			slow.warm()
			slow.proxy.Freeze(faultconn.Replies)
			w.history.add(call{Op: "fault", Outcome: "hold replies", Start: now(), End: now() + delay})
			asked := now()
			type result struct {
				h   *holding
				err error
			}
			answer := make(chan result, 1)
			go func() {
				h, err := slow.take(t.Context(), "job", false)
				answer <- result{h, err}
			}()
			pgtest.WaitFor(t, "the grant", func() bool { return w.locked("job") == 1 })
			next := async(func() (*holding, error) { return rival.take(t.Context(), "job", true) })
			pass(t.Context(), delay-(now()-asked))
			slow.proxy.Thaw(faultconn.Replies)
			got := <-answer
			switch {
			case got.err == nil:
				if after := got.h.began - asked; after > trusted {
					t.Errorf("a handle %v after the request", after)
				}
				_ = got.h.end(t.Context())
			case delay < trusted/2, errors.Is(got.err, pgmutex.ErrHeld):
				t.Errorf("a reply after %v: %v", delay, got.err)
			}
			if err := <-next; !errors.Is(err, errGranted) {
				t.Errorf("the rival: %v", err)
			}
			w.unlocked("job")
			w.judge(demand{"acquire granted"})
		})
	}
}

// Row 6: a request that arrives after everybody has given it up locks nothing for
// longer than its session lasts, which its client has ended.
func TestAdvisoryRow06DelayedRequest(t *testing.T) {
	t.Parallel()
	w := newSessions(t, nil)
	c := w.client("late")
	c.warm()
	held := c.proxy.Conns()
	for _, conn := range held {
		conn.Freeze(faultconn.Requests)
	}
	w.history.add(call{Op: "fault", Outcome: "hold requests", Start: now()})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := c.take(ctx, "job", false); err == nil || errors.Is(err, pgmutex.ErrHeld) {
		t.Errorf("acquire: %v", err)
	}
	pass(t.Context(), trusted+slack) // now the session has been given up
	before := c.proxy.Counts().Seen(faultconn.Replies, 'C')
	for _, conn := range held {
		conn.Thaw(faultconn.Requests)
	}
	// The next one goes over another session.
	h := c.must("job")
	if c.proxy.Counts().Connections < 2 {
		t.Error("vacuous: the session was not given up")
	}
	t.Logf("%d answers since the request arrived", c.proxy.Counts().Seen(faultconn.Replies, 'C')-before)
	pgtest.Must(t, h.end(t.Context()))
	w.unlocked("job")
	w.judge(demand{"acquire granted"})
}

// Rows 7, 9 and 25: the connection ends after the server did what was asked and
// before its reply, by a close or by a reset. The session goes with it, and with
// the session whatever is held on it.
func TestAdvisoryRow07To09RepliesThatAreLost(t *testing.T) {
	t.Parallel()
	for kind, end := range map[string]func(*faultconn.Proxy){"cut": (*faultconn.Proxy).Cut, "reset": (*faultconn.Proxy).Reset} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newSessions(t, nil)
			c := w.client("c", minutes)
			c.warm()
			beside := c.must("beside")
			cut := func(name string, done func() bool) {
				pgtest.WaitFor(t, name, done)
				w.history.add(call{Op: "fault", Outcome: kind + " after " + name, Start: now()})
				end(c.proxy)
				c.proxy.Thaw(faultconn.Replies)
			}
			c.proxy.Freeze(faultconn.Replies)
			acquired := async(func() (*holding, error) { return c.take(t.Context(), "job", false) })
			cut("acquire", func() bool { return w.locked("job") == 1 })
			if err := <-acquired; err == nil || errors.Is(err, errGranted) || errors.Is(err, pgmutex.ErrHeld) {
				t.Errorf("a grant whose reply was lost: %v", err)
			}
			beside.lostWithin(slack)
			_ = beside.end(t.Context())
			c.warm() // prepared on this session
			h := c.must("job")
			first := h.Token()
			c.proxy.Freeze(faultconn.Replies)
			released := make(chan error, 1)
			go func() { released <- h.end(t.Context()) }()
			cut("release", func() bool { return w.locked("job") == 0 })
			if err := <-released; err != nil {
				t.Logf("release: %v", err)
			}
			if h.Held() {
				t.Error("held after its release")
			}
			_ = h.Release(t.Context()) // a no-op
			g := c.must("job")
			if g.Token() <= first {
				t.Errorf("token %d after %d", g.Token(), first)
			}
			pgtest.Must(t, g.end(t.Context()))
			w.unlocked("job")
			w.judge(demand{"acquire granted"})
		})
	}
}

// Row 10: contexts that end around the completion of a call. No lock stays that
// has no live handle, and nobody else's hold on the session suffers.
func TestAdvisoryRow10Cancellations(t *testing.T) {
	t.Parallel()
	s := storm{seed: seed(t)}
	w := newSessions(t, nil)
	c := w.client("c", minutes)
	beside := c.must("beside")
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			rng := s.source("cancel", i)
			for n := range 375 {
				s.cancelled(t.Context(), c, fmt.Sprintf("job-%d-%d", i, n%7), rng)
			}
		})
	}
	all.Wait()
	pgtest.WaitFor(t, "everything else to be given back", func() bool {
		return pgtest.One[int64](t, w.dsn, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`) == 1
	})
	if !beside.look() {
		t.Errorf("the hold beside them: %v", beside.Err())
	}
	pgtest.Must(t, beside.end(t.Context()))
	w.judge(demand{"acquire granted", "acquire unknown"})
}

// Row 21: an idle holder that is cut off without a word has ended its hold before
// the server ends its session.
func TestAdvisoryRow21BlackHole(t *testing.T) {
	t.Parallel()
	w := newSessions(t, nil)
	w.allowed = 0 // nothing else ends a session here
	holder, rival := w.client("holder"), w.client("rival")
	for round := range 3 {
		name := fmt.Sprint("job-", round)
		h := holder.must(name)
		pass(t.Context(), session/6)
		granted := make(chan *holding, 1)
		go func() {
			g, err := rival.take(t.Context(), name, true)
			if err != nil {
				w.violation("rival: %v", err)
			}
			granted <- g
		}()
		w.history.add(call{Op: "fault", Outcome: "freeze", Start: now()})
		cut, deadline := now(), now()+time.Until(h.Deadline())
		holder.proxy.Freeze(freezeBoth)
		frozen, until := time.Now(), h.Deadline() // which the loss will set to its own moment
		h.lostWithin(trusted + slack)
		told := now()
		if until.After(frozen.Add(trusted)) {
			t.Errorf("trusted until %v after the last answer that could come", until.Sub(frozen))
		}
		g := <-granted
		if g == nil {
			break
		}
		t.Logf("told %v after the deadline, next holder %v after the cut", told-deadline, g.began-cut)
		if told > g.began {
			t.Errorf("told %v after the next holder began", told-g.began)
		}
		if after := g.began - cut; after > session+2*slack {
			t.Errorf("the next holder began %v after the cut", after)
		}
		holder.heal()
		_ = h.end(t.Context())
		if err := g.Heartbeat(t.Context()); err != nil {
			t.Errorf("the rival: %v", err)
		}
		pgtest.Must(t, g.end(t.Context()))
	}
	w.judge(demand{"lost", "acquire granted"})
}
