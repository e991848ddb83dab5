package lease

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// TestOneWinner lets 32 clients, each on a connection of its own, try for one
// name at the same moment: absent, stale, or released in that moment.
func TestOneWinner(t *testing.T) {
	const clients, rounds = 32, 300
	dsn := database(t, nil)
	conn := pgtest.Conn(t, dsn)
	all := make([]*client, clients)
	for i := range all {
		all[i] = start(t, dsn, nil)
	}
	for _, kind := range []string{"absent", "stale", "released"} {
		t.Run(kind, func(t *testing.T) {
			highest := int64(0)
			for round := range rounds {
				name := fmt.Sprintf("%s-%d", kind, round)
				var before engine.Term
				if kind != "absent" {
					before = all[0].take(request(name))
					highest = max(highest, before.Token)
				}
				if kind == "stale" {
					age(t, conn, name, time.Hour)
				}
				answers := make([]engine.Answer, clients)
				var ready, done sync.WaitGroup
				gun := make(chan struct{})
				for i, c := range all {
					ready.Add(1)
					done.Go(func() {
						r := request(name)
						ready.Done()
						<-gun
						if i == 0 && kind == "released" {
							c.release(before)
							return
						}
						answers[i] = c.try(r)
					})
				}
				ready.Wait()
				close(gun)
				done.Wait()

				winners := 0
				for i, a := range answers {
					switch {
					case i == 0 && kind == "released":
					case a.Outcome == engine.Granted:
						winners++
						if a.Token <= highest {
							t.Errorf("round %d: token %d after %d", round, a.Token, highest)
						}
						highest = max(highest, a.Token)
						switch {
						case kind == "stale" && (a.TookOver == nil || a.TookOver.ID != before.ID):
							t.Errorf("round %d: took over %+v, want %s", round, a.TookOver, before.ID)
						case kind != "stale" && a.TookOver != nil:
							t.Errorf("round %d: took over %+v", round, a.TookOver)
						}
					case a.Outcome != engine.Busy:
						t.Errorf("round %d: outcome %d, error %v", round, a.Outcome, a.Err)
					}
				}
				// Everybody may have been there before the release.
				if winners > 1 || winners == 0 && kind != "released" {
					t.Errorf("round %d: %d winners", round, winners)
				}
				if n := pgtest.One[int64](t, conn, "SELECT count(*) FROM mutex_lock WHERE lock_name = $1", name); n != int64(winners) {
					t.Errorf("round %d: %d rows for %d winners", round, n, winners)
				}
			}
		})
	}
}

// TestEveryReleaseIsHeardByWhoeverJoined lets waiters join while the lock is
// being released: nobody may be left waiting beside a free lock without having
// been told.
func TestEveryReleaseIsHeardByWhoeverJoined(t *testing.T) {
	const clients, rounds = 4, 50
	dsn := database(t, nil)
	all := make([]*client, clients)
	for i := range all {
		all[i] = start(t, dsn, nil)
	}
	var group sync.WaitGroup
	for _, c := range all {
		group.Go(func() {
			for range rounds {
				term, ok := c.await("job")
				if !ok {
					return
				}
				if r := c.release(term); r.Outcome != engine.Removed {
					t.Errorf("release: %+v", r)
				}
			}
		})
	}
	group.Wait()
	if n := pgtest.One[int64](t, dsn, "SELECT count(*) FROM mutex_lock_waiter"); n != 0 {
		t.Errorf("%d places are left in the line", n)
	}
}

// await waits for a name as a client does, without ever polling: only a
// notification or the time that an answer gave makes it try again.
func (c *client) await(name string) (engine.Term, bool) {
	c.t.Helper()
	bound := time.NewTimer(60 * time.Second)
	defer bound.Stop()
	r := waiting(name)
	for {
		a := c.try(r)
		if a.Outcome == engine.Granted {
			r.Term.Token = a.Token
			return r.Term, true
		}
		if a.Outcome != engine.Busy {
			c.t.Errorf("outcome %d: %v", a.Outcome, a.Err)
			return r.Term, false
		}
		var again <-chan time.Time
		if a.RetryIn > 0 {
			again = time.After(a.RetryIn)
		}
		select {
		case <-c.sink.news:
		case <-again:
		case <-bound.C:
			c.t.Errorf("nobody said that %q is free; the last answer was %+v", name, a)
			return r.Term, false
		}
		r.Term.ID = newID()
	}
}
