package lease

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/faultconn"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

func TestABatchTakesWhatIsFree(t *testing.T) {
	proxy := faultconn.New(t, pgtest.Shared(t).Addr())
	dsn := database(t, nil)
	c, other := start(t, proxy.DSN(dsn), nil), start(t, dsn, nil)
	held := other.take(request("held"))
	other.take(request("stale"))
	age(t, dsn, "stale", time.Hour)
	blocked := other.take(request("queued"))
	other.busy(waiting("queued"))
	other.drop(blocked)

	details := request("free 1")
	details.Details = map[string]string{"k": `v"{},\`}
	batch := []engine.Request{
		details, request("held"), waiting("held 2"), request("stale"), waiting("queued"), request("free 0"), request("held 3"),
	}
	other.take(request("held 2"))
	other.take(request("held 3"))
	c.busy(request("held")) // which it remembers
	c.Acquire(t.Context(), []engine.Request{request("warm 1"), request("warm 2")})
	c.Acquire(t.Context(), []engine.Request{request("warm 1"), request("warm 2")})
	before := proxy.Counts()
	answers := c.Acquire(t.Context(), batch)
	if got := proxy.Counts().Since(before).RoundTrips(); got != 2 {
		t.Errorf("%d round trips", got)
	}
	for i, want := range []engine.Answer{
		{Outcome: engine.Granted}, {Outcome: engine.Busy}, {Alone: true}, {Alone: true}, {Alone: true}, {Outcome: engine.Granted}, {Alone: true},
	} {
		a := answers[i]
		if a.Alone != want.Alone || !a.Alone && a.Outcome != want.Outcome || a.Err != nil {
			t.Errorf("%s: %+v", batch[i].Term.Name, a)
		}
		if a.Outcome == engine.Granted && (a.Token <= 0 || a.AcquiredAt.IsZero()) {
			t.Errorf("%s: %+v", batch[i].Term.Name, a)
		}
	}
	if h := answers[1].Holder; h == nil || h.ID != held.ID || h.StaleAfter != time.Minute {
		t.Errorf("held: %+v", h)
	}
	st, err := c.Inspect(t.Context(), "free 1")
	pgtest.Must(t, err)
	if st.Details["k"] != `v"{},\` || st.Term != batch[0].Term.ID || st.StaleAfter != time.Minute {
		t.Errorf("free 1: %+v", st)
	}
	// Alone means that nothing was done.
	for _, i := range []int{2, 3, 4, 6} {
		if n := pgtest.One[int64](t, dsn, "SELECT count(*) FROM mutex_lock WHERE instance_id = $1", batch[i].Term.ID); n != 0 {
			t.Errorf("%s was taken", batch[i].Term.Name)
		}
	}
	if a := c.try(batch[3]); a.Outcome != engine.Granted || a.TookOver == nil {
		t.Errorf("stale, alone: %+v", a)
	}
}

func TestABatchIsSplitWhereARowIsLocked(t *testing.T) {
	dsn := database(t, nil)
	c := start(t, dsn, nil)
	stranger := begin(t, dsn)
	pgtest.Exec(t, stranger, "INSERT INTO mutex_lock (lock_name, instance_id, last_heartbeat, acquired_at) VALUES ('b', 'x', now(), now())")
	for _, a := range c.Acquire(t.Context(), []engine.Request{request("a"), request("b"), request("c")}) {
		if !a.Alone {
			t.Errorf("%+v", a)
		}
	}
	c.take(request("a"))
	c.busy(request("b"))
	pgtest.Must(t, stranger.Rollback(t.Context()))
}

// TestBatchesThatMeet lets clients take overlapping sets of names in opposite
// orders: each name has one holder, and nobody runs into a deadlock.
func TestBatchesThatMeet(t *testing.T) {
	const clients, names, rounds = 6, 20, 30
	dsn := database(t, nil)
	all := make([]*client, clients)
	for i := range all {
		all[i] = start(t, dsn, nil)
	}
	for round := range rounds {
		var mu sync.Mutex
		holders := map[string]int{}
		var group sync.WaitGroup
		for i, c := range all {
			group.Go(func() {
				batch := make([]engine.Request, names)
				for k := range batch {
					name := k
					if i%2 == 1 {
						name = names - 1 - k
					}
					batch[k] = request(fmt.Sprintf("%d-%02d", round, name))
				}
				answers := c.Acquire(t.Context(), batch)
				mu.Lock()
				defer mu.Unlock()
				for k, a := range answers {
					switch {
					case a.Alone:
					case a.Outcome == engine.Granted:
						holders[batch[k].Term.Name]++
					case a.Outcome != engine.Busy:
						t.Errorf("%+v", a)
					}
				}
			})
		}
		group.Wait()
		for name, n := range holders {
			if n != 1 {
				t.Errorf("%s has %d holders", name, n)
			}
		}
		if len(holders) != names {
			t.Errorf("round %d: %d of %d names were taken", round, len(holders), names)
		}
	}
}
