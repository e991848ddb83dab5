package keeper

import (
	"time"

	"github.com/pgmutex/pgmutex/engine"
)

// A watch is a waiter's own judgement of a holder.
//
// The store's clock is believed once for each heartbeat: for how old it was
// when it was first seen. From then on the waiter goes by its own clock, so
// that a step of the store's clock during the wait can neither take a lock
// from a live holder nor keep a dead one's for ever.
type watch struct {
	seen    bool          // a holder was seen at all
	value   string        // the heartbeat watched, see engine.Rival
	expiry  time.Duration // when it is stale, by our clock
	age     time.Duration // at that heartbeat's first sight
	arrived time.Duration // of its first sight
	sent    time.Duration // of the latest look
}

// look takes in an answer that was asked for at sent and came at arrived.
func (w *watch) look(r *engine.Rival, sent, arrived time.Duration) {
	if w.seen && r.Heartbeat == w.value {
		w.sent = sent
		return
	}
	// Below zero when the store's clock was set back: counting from now is then
	// the longest wait that can be right.
	age := max(r.Age, 0)
	if w.seen {
		// This heartbeat was not there at the previous look, so it cannot be
		// older than that, whatever the store's clock says. Nor is more of it
		// believed than what others wait longer than its holder trusts itself:
		// if the store's clock has just made a step, all of it may be wrong.
		age = min(age, arrived-w.sent, r.StaleAfter/3)
	}
	*w = watch{
		seen:    true,
		value:   r.Heartbeat,
		expiry:  arrived + r.StaleAfter - age,
		age:     age,
		arrived: arrived,
		sent:    sent,
	}
}

// take returns the heartbeat that may be taken over at that time, if any.
func (w *watch) take(now time.Duration) string {
	if w.seen && now >= w.expiry {
		return w.value
	}
	return ""
}

// ageAt returns how old the heartbeat is by our clock.
func (w *watch) ageAt(now time.Duration) time.Duration { return w.age + now - w.arrived }
