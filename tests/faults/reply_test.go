//go:build faults

package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/internal/faultconn"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

const freezeBoth = faultconn.Both

// longTimes are for what must not be covered up by a row that goes stale.
func longTimes(o *pgmutex.Options) { o.StaleAfter, o.Heartbeat = 30*time.Second, 500*time.Millisecond }

// async makes a call on a goroutine.
func async(f func() (*holding, error)) <-chan error {
	done := make(chan error, 1)
	go func() {
		h, err := f()
		if err == nil {
			err = h.end(context.Background())
			if err == nil {
				err = errGranted
			}
		}
		done <- err
	}()
	return done
}

var errGranted = errors.New("granted, and released")

// Row 5: a grant whose reply comes after its trust has passed is none; one that
// comes before counts from the request.
func TestRow05DelayedReply(t *testing.T) {
	t.Parallel()
	for _, delay := range []time.Duration{fence / 4, fence * 3 / 4, fence + 100*time.Millisecond, stale + 300*time.Millisecond} {
		t.Run(delay.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			slow, rival := w.client("slow"), w.client("rival")
			slow.warm() // connected by now
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
			pgtest.WaitFor(t, "the grant", func() bool { return w.rows("job") == 1 })
			next := async(func() (*holding, error) { return rival.take(t.Context(), "job", true) })
			pass(t.Context(), delay-(now()-asked))
			slow.proxy.Thaw(faultconn.Replies)
			got := <-answer
			switch {
			case got.err == nil:
				if after := got.h.began - asked; after > fence {
					t.Errorf("a handle %v after the request", after)
				}
				// From the request on: what is left is at most the rest of trust.
				if left := time.Until(got.h.Deadline()); left > fence-(delay-heartbeat) && left > fence-(now()-asked)+heartbeat {
					t.Logf("trust left: %v", left) // a renewal may have come meanwhile
				}
				_ = got.h.end(t.Context())
			case delay < fence/2:
				t.Errorf("a reply after %v: %v", delay, got.err)
			case !errors.Is(got.err, pgmutex.ErrUnknown):
				t.Errorf("a reply after %v: %v", delay, got.err)
			}
			if err := <-next; !errors.Is(err, errGranted) {
				t.Errorf("the rival: %v", err)
			}
			w.free("job")
			w.judge(demand{"acquire granted"})
		})
	}
}

// The deadline of a grant counts from its request, and so does a renewal's, seen
// with a holder whose replies are late and whose connection then dies.
func TestRow05DeadlineCountsFromTheRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	slow, rival := w.client("slow"), w.client("rival")
	const late = fence * 8 / 10
	var h *holding
	for n := 0; h == nil; n++ {
		slow.warm()
		slow.proxy.Delay(faultconn.Replies, late)
		var err error
		// A busy machine may come to it so late that the connection is asked first,
		// for which there is no time then.
		if h, err = slow.take(t.Context(), "job", false); err != nil && n == 4 {
			t.Fatal(err)
		} else if err != nil {
			slow.heal()
		}
	}
	slow.proxy.Freeze(freezeBoth) // no renewal gets through
	next := async(func() (*holding, error) { return rival.take(t.Context(), "job", true) })
	if left := time.Until(h.Deadline()); left > fence-late+50*time.Millisecond {
		t.Errorf("a reply %v late left %v of trust", late, left)
	}
	h.lostWithin(fence + slack)
	if err := <-next; !errors.Is(err, errGranted) {
		t.Errorf("the rival: %v", err)
	}
	slow.heal()
	_ = h.end(t.Context())
	w.judge(demand{"takeover", "lost"})
}

// The same for renewals: those that are confirmed late do not count from the
// confirmation.
func TestRow05RenewalCountsFromItsRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	slow, rival := w.client("slow"), w.client("rival")
	h := slow.must("job")
	pgtest.Must(t, h.Heartbeat(t.Context()))
	slow.proxy.Delay(faultconn.Replies, fence*8/10)
	beats := make(chan error, 1)
	go func() { beats <- h.Heartbeat(t.Context()) }()
	pgtest.Must(t, <-beats) // one that took most of the trust
	slow.proxy.Freeze(freezeBoth)
	g, err := rival.take(t.Context(), "job", true)
	pgtest.Must(t, err)
	slow.heal()
	_ = h.end(t.Context())
	pgtest.Must(t, g.end(t.Context()))
	w.judge(demand{"takeover"})
}

// Row 6: a request that arrives after everybody has given it up leaves nothing,
// although the first look for it found nothing.
func TestRow06DelayedRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	audit(t, w)
	const longest = 15 * time.Second // that a call is waited for
	c := w.client("late", longTimes)
	c.warm()
	// The connection for work is the one that the warm-up used.
	held := c.proxy.Conns()
	for _, conn := range held {
		conn.Freeze(faultconn.Requests)
	}
	sent := now()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := c.take(ctx, "job", false); !errors.Is(err, pgmutex.ErrUnknown) {
		t.Errorf("acquire: %v", err)
	}
	pass(t.Context(), longest+400*time.Millisecond-(now()-sent)) // now it has been looked for, in vain
	if n := w.rows("job"); n != 0 {
		t.Fatalf("%d rows before the request arrived", n)
	}
	for _, conn := range held {
		conn.Thaw(faultconn.Requests)
	}
	thawed := now()
	pgtest.WaitFor(t, "the late request to arrive", func() bool {
		return pgtest.One[int64](t, w.dsn, "SELECT count(*) FROM fault_audit WHERE op = 'INSERT' AND name = 'job'") == 1
	})
	w.free("job")
	if took := now() - thawed; took > 2*time.Second {
		t.Errorf("the ghost was there for %v", took)
	}
	w.judge(demand{"acquire unknown"})
}

// audit writes down every change of a lock row (AL).
func audit(t testing.TB, w *world) {
	t.Helper()
	pgtest.Exec(t, w.dsn, `
CREATE TABLE fault_audit (id bigserial, at timestamptz DEFAULT clock_timestamp(), op text, name text, term text);
CREATE FUNCTION fault_audit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF TG_OP = 'DELETE' THEN INSERT INTO fault_audit (op, name, term) VALUES (TG_OP, OLD.lock_name, OLD.instance_id);
  ELSE INSERT INTO fault_audit (op, name, term) VALUES (TG_OP, NEW.lock_name, NEW.instance_id); END IF;
  RETURN NULL; END $$;
CREATE TRIGGER fault_audit AFTER INSERT OR UPDATE OR DELETE ON mutex_lock FOR EACH ROW EXECUTE FUNCTION fault_audit();`)
}

// Rows 7, 8, 9 and 25: the connection ends after the commit and before the
// reply, by a close or by a reset.
func TestRow07To09RepliesThatAreLost(t *testing.T) {
	t.Parallel()
	for kind, end := range map[string]func(*faultconn.Proxy){"cut": (*faultconn.Proxy).Cut, "reset": (*faultconn.Proxy).Reset} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			c := w.client("c", longTimes)
			c.warm()
			cut := func(name string, committed func() bool) {
				pgtest.WaitFor(t, name, committed)
				w.history.add(call{Op: "fault", Outcome: kind + " after the commit of " + name, Start: now()})
				end(c.proxy)
				c.proxy.Thaw(faultconn.Replies)
			}

			// The grant.
			c.proxy.Freeze(faultconn.Replies)
			acquired := async(func() (*holding, error) { return c.take(t.Context(), "job", false) })
			cut("acquire", func() bool { return w.rows("job") == 1 })
			if err := <-acquired; !errors.Is(err, pgmutex.ErrUnknown) || errors.Is(err, pgmutex.ErrHeld) {
				t.Errorf("a grant whose reply was lost: %v", err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			h, err := c.take(ctx, "job", true) // over its own ghost, if that is still there
			pgtest.Must(t, err)

			// A renewal.
			beat := func() time.Time {
				return pgtest.One[time.Time](t, w.dsn, "SELECT last_heartbeat FROM mutex_lock WHERE lock_name = 'job'")
			}
			pgtest.Must(t, h.Heartbeat(t.Context())) // prepared on this connection by now
			c.proxy.Freeze(faultconn.Replies)
			before := beat()
			renewed := make(chan error, 1)
			go func() { renewed <- h.Heartbeat(t.Context()) }()
			cut("renew", func() bool { return beat().After(before) })
			<-renewed
			pgtest.WaitFor(t, "a heartbeat to be confirmed again", func() bool { return h.Heartbeat(t.Context()) == nil })
			if err := h.Err(); err != nil {
				t.Errorf("lost by its own success: %v", err)
			}

			// The release.
			c.warm()
			c.proxy.Freeze(faultconn.Replies)
			released := make(chan error, 1)
			go func() { released <- h.end(t.Context()) }()
			cut("release", func() bool { return w.rows("job") == 0 })
			if err := <-released; err != nil {
				t.Logf("release: %v", err)
			}
			if h.Held() {
				t.Error("held after its release")
			}
			if err := h.Release(t.Context()); errors.Is(err, pgmutex.ErrLost) {
				t.Errorf("second release: %v", err)
			}
			g := c.must("job")
			if g.Token() <= h.Token() {
				t.Errorf("token %d after %d", g.Token(), h.Token())
			}
			pgtest.Must(t, g.end(t.Context()))
			w.free("job")
			w.judge(demand{"acquire unknown", "acquire granted"})
		})
	}
}

// Row 10: contexts that end around the completion of a call. Whatever they hit,
// a row without a live handle does not stay.
func TestRow10Cancellations(t *testing.T) {
	t.Parallel()
	s := storm{seed: seed(t)}
	w := newWorld(t, nil)
	c := w.client("c", longTimes)
	c.warm()
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
	if n := w.history.n("acquire"); n < 1500 {
		t.Errorf("%d calls", n)
	}
	pgtest.WaitFor(t, "everything to be given back", func() bool {
		return pgtest.One[int64](t, w.dsn, "SELECT count(*) FROM mutex_lock") == 0
	})
	w.judge(demand{"acquire granted", "acquire unknown"})
}

func (s storm) cancelled(ctx context.Context, c *client, name string, rng *rand.Rand) {
	limit := time.Duration(100+rng.IntN(1900)) * time.Microsecond
	attempt, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := now()
	h, err := c.take(attempt, name, rng.IntN(2) == 0)
	if took := now() - began; took > slack+limit {
		c.w.violation("a context of %v ended a call after %v", limit, took)
	}
	if err == nil {
		_ = h.end(ctx)
	}
}
