//go:build load

package lease_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/internal/pgtest"
	"github.com/pgmutex/pgmutex/lease"
)

// TestMixedLoad is what make load runs, under the race detector: 256 goroutines
// of four clients take locks with and without waiting, many of them giving up at
// any moment, while somebody kills their connections; with group commit, and
// without it. A wrong answer is a lock that two believe to hold, a token that
// does not rise, an error that says nothing, or a row that is left behind.
func TestMixedLoad(t *testing.T) {
	length := 5 * time.Minute
	if text := os.Getenv("PGMUTEX_LOAD_LENGTH"); text != "" {
		var err error
		length, err = time.ParseDuration(text)
		pgtest.Must(t, err)
	}
	for _, c := range []combination{{"DSN", "direct", false, false}, {"DSN", "direct", false, true}} {
		t.Run(c.String(), func(t *testing.T) { mixedLoad(t, c, length/2) })
	}
}

// owner is who believes to hold a name, by what was granted last.
type owner struct {
	hold  *pgmutex.Hold
	token int64
}

func mixedLoad(t *testing.T, c combination, length time.Duration) {
	const clients, goroutines, names = 4, 256, 96
	dsn := pgtest.New(t, pgtest.Options{}).Database(t)
	pgtest.Must(t, lease.Migrate(t.Context(), dsn, nil))
	admin := pgtest.Conn(t, dsn)
	var owners [names]atomic.Pointer[owner]
	var granted, refused, gaveUp, killed, lost, unconfirmed atomic.Int64

	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var all []*pgmutex.Client
	for range clients {
		eng, err := sources[c.source](t, dsn, nil)
		pgtest.Must(t, err)
		client, err := pgmutex.New(t.Context(), withoutBatches(eng, c.alone), &pgmutex.Options{
			Heartbeat: 500 * time.Millisecond, StaleAfter: 15 * time.Second,
		})
		pgtest.Must(t, err)
		all = append(all, client)
	}

	work := func(client *pgmutex.Client) {
		n := rand.IntN(names)
		limit := time.Duration(rand.IntN(2000)) * time.Millisecond
		if rand.IntN(4) == 0 {
			limit = time.Duration(rand.IntN(3000)) * time.Microsecond // often while the request is under way
		}
		attempt, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
		defer cancel()
		acquire := client.Acquire
		if rand.IntN(2) == 0 {
			acquire = client.TryAcquire
		}
		h, err := acquire(attempt, fmt.Sprint("n", n))
		if err != nil {
			var why *pgmutex.AcquireError
			switch {
			case !errors.As(err, &why):
				t.Errorf("%T: %v", err, err)
			case errors.Is(err, pgmutex.ErrHeld):
				refused.Add(1)
			default: // the time was over, or the connection was killed
				gaveUp.Add(1)
			}
			return
		}
		granted.Add(1)
		me := &owner{h, h.Info().Token}
		before := owners[n].Swap(me)
		if before != nil && before.hold.Held() {
			t.Errorf("n%d: token %d granted while %d is held", n, me.token, before.token)
		}
		if before != nil && before.token >= me.token {
			t.Errorf("n%d: token %d after %d", n, me.token, before.token)
		}
		time.Sleep(time.Duration(rand.IntN(4000)) * time.Microsecond) //nolint:forbidigo // paces the load
		// In this order: whoever is granted the lock replaces us only when our
		// trust is over.
		if now := owners[n].Load(); now != me && h.Held() {
			t.Errorf("n%d: token %d was replaced by %d and is held still", n, me.token, now.token)
		}
		switch err := h.Release(context.WithoutCancel(ctx)); {
		case errors.Is(err, pgmutex.ErrLost):
			lost.Add(1)
		case err != nil:
			unconfirmed.Add(1) // cut off, and going on
		}
	}
	var group sync.WaitGroup
	for i := range goroutines {
		group.Go(func() {
			for ctx.Err() == nil {
				work(all[i%clients])
			}
		})
	}
	group.Go(func() {
		for ctx.Err() == nil {
			time.Sleep(time.Duration(rand.IntN(600)) * time.Millisecond) //nolint:forbidigo // paces the kills
			killed.Add(pgtest.One[int64](t, admin, `SELECT count(pg_terminate_backend(pid)) FROM (
				SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
				ORDER BY random() LIMIT 1) AS one`))
		}
	})
	group.Wait()
	for _, client := range all {
		closing, cancel := context.WithTimeout(context.Background(), time.Minute)
		if err := client.Close(closing); err != nil {
			t.Errorf("close: %v", err)
		}
		cancel()
	}
	// Only an attempt whose outcome nobody has learnt may be left to lapse.
	left := pgtest.One[int64](t, admin, `SELECT count(*) FROM mutex_lock`)
	if left > killed.Load() {
		t.Errorf("%d rows left", left)
	}
	t.Logf("%d granted, %d refused, %d gave up, %d lost, %d releases unconfirmed, %d connections killed, %d rows left to lapse",
		granted.Load(), refused.Load(), gaveUp.Load(), lost.Load(), unconfirmed.Load(), killed.Load(), left)
	for what, n := range map[string]int64{
		"granted": granted.Load(), "refused": refused.Load(), "gave up": gaveUp.Load(), "killed": killed.Load(),
	} {
		if n < 20 {
			t.Errorf("%d %s: this has shown nothing", n, what)
		}
	}
}
