package pgmutex

import (
	"context"
	"time"
)

// Hooks are functions that are told what happens; any of them may be nil.
//
// All hooks of a client are called from one goroutine, in the order in which
// things happened for each name, and off the path of every lock: a hook that
// is slow, blocks, panics or calls back into the client delays and breaks none.
// The queue before them is bounded; when it overflows, events are dropped,
// heartbeats first, and counted in the next event's Dropped.
//
// The context carries the values of the acquisition's context; it does not end.
type Hooks struct {
	// Acquired: a lock was granted. Took is the time since it was asked for.
	Acquired func(ctx context.Context, e Event)

	// TakenOver: a lock was granted in place of a stale holder, Rival, whose last
	// heartbeat was Age ago. Acquired follows.
	TakenOver func(ctx context.Context, e Event)

	// Contended: an acquisition found the lock held by Rival. Once for each
	// acquisition.
	Contended func(ctx context.Context, e Event)

	// Waiting: a waiter looked again and the lock is still held by Rival; Place
	// is the place in the line, 0 where unknown.
	Waiting func(ctx context.Context, e Event)

	// Failed: an acquisition ended without the lock after Took, with the error Err
	// that its caller gets.
	Failed func(ctx context.Context, e Event)

	// Heartbeat: a renewal of one hold was answered after Took, or was not, then
	// with Err. Margin is the trust that was left when the answer came.
	Heartbeat func(ctx context.Context, e Event)

	// Alert: a holder has been silent for Age, which is AlertAfter or more. Rival
	// is that holder; empty if it is this client's own hold that cannot be
	// renewed. Once for each hold and observer.
	Alert func(ctx context.Context, e Event)

	// AlertCleared: what Alert reported is over, because that holder is heard of
	// again or holds the lock no longer. Rival is who the alert was about; empty if
	// it was this client's own hold, which then goes on or has ended.
	AlertCleared func(ctx context.Context, e Event)

	// Released: a hold was given back and that is confirmed. Took is how long it
	// was held.
	Released func(ctx context.Context, e Event)

	// ReleaseUnconfirmed: a hold was given back, and the store has not confirmed
	// it within ReleaseTimeout for the reason Err. It goes on in the background,
	// and Released follows if it is confirmed there. Took is how long it was held.
	ReleaseUnconfirmed func(ctx context.Context, e Event)

	// Lost: a hold ended against its owner's will, for Reason and by Rival, where
	// known; Err is the *LostError. Took is how long it was held. It comes after
	// the store has been asked for the reason, a second after the loss at most;
	// the hold's context ended at once.
	Lost func(ctx context.Context, e Event)
}

// An Event is what a hook is told. Fields that the hook's description does not
// name may be zero.
type Event struct {
	Info  Info      // the hold or, before there is one, just Name, ID, Engine and Holder
	Start time.Time // when what took Took began

	Rival   string            // label of another holder
	Details map[string]string // what that holder shows
	Since   time.Time         // when that holder acquired the lock, by the store's clock
	Age     time.Duration     // since the holder's last heartbeat
	Try     bool              // of an acquisition that does not wait for another holder
	Limit   time.Duration     // AcquireOptions.Wait of an acquisition; 0: none
	Took    time.Duration
	Margin  time.Duration
	Place   int
	Reason  LossReason
	Err     error
	Dropped int // events that were dropped before this one
}
