package cli

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pgmutex/pgmutex"
)

// A lossWatch finds out whether somebody else may already hold a lock that was
// lost. While the store still shows our own term nobody does, and the command
// has time to end properly.
type lossWatch struct {
	client *pgmutex.Client
	lock   string
	hold   *pgmutex.Hold
	hurry  chan struct{}

	over chan struct{}
	work sync.WaitGroup
}

func newLossWatch(client *pgmutex.Client, lock string, hold *pgmutex.Hold) *lossWatch {
	return &lossWatch{client: client, lock: lock, hold: hold, hurry: make(chan struct{}), over: make(chan struct{})}
}

// end joins what lost has started.
func (w *lossWatch) end() {
	close(w.over)
	w.work.Wait()
}

// lookAgain is how often the store is looked at: an operator may first ask a
// holder to stop, and then end its hold at once.
const lookAgain = 250 * time.Millisecond

// lost is called once the hold has been lost.
func (w *lossWatch) lost() (hurry bool) {
	var lost *pgmutex.LostError
	if errors.As(w.hold.Err(), &lost) {
		switch lost.Reason() {
		case pgmutex.LostExpired, pgmutex.LostReadOnly, pgmutex.LostReleased:
			// Ours may still be the term in the store: the deadline comes before
			// anybody may take over, and an operator may only have asked.
		default:
			return true
		}
	}
	w.work.Go(w.look)
	return false
}

func (w *lossWatch) look() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w.work.Go(func() {
		<-w.over
		cancel()
	})
	ticker := time.NewTicker(lookAgain)
	defer ticker.Stop()
	for {
		status, err := w.client.Inspect(ctx, w.lock)
		if err == nil && status.Term != w.hold.Info().Term {
			close(w.hurry)
			return
		}
		select {
		case <-ticker.C:
		case <-w.over:
			return
		}
	}
}
