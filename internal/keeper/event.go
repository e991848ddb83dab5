package keeper

import (
	"context"
	"time"

	"github.com/pgmutex/pgmutex/engine"
)

// Kind says what an Event reports.
type Kind uint8

const (
	Acquired Kind = iota
	Contended
	Waiting
	Failed
	TakenOver
	Heartbeat
	Alert
	AlertCleared
	Released
	ReleaseUnconfirmed
	Lost
)

// An Event is something that happened to one name. Which fields are set
// depends on the kind; package pgmutex documents them.
type Event struct {
	Kind   Kind
	Ctx    context.Context // the values of the acquisition's context
	Lease  *Lease          // ours, where there is one
	Term   engine.Term     // ours; without an ID where there is no lease yet
	At     time.Time       // when it began, for what takes time
	Rival  *engine.Rival   // the other holder
	Try    bool            // of an Ask that does not wait
	Limit  time.Duration   // of an Ask that does
	Took   time.Duration
	Age    time.Duration // of the rival's or our own heartbeat
	Margin time.Duration // trust that was left
	Place  int
	Ending *Ending
	Err    error
}

// event returns an Event about the lease.
func (l *Lease) event(kind Kind) Event {
	return Event{Kind: kind, Ctx: l.values, Lease: l, Term: l.term}
}
