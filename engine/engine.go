package engine

import (
	"context"
	"iter"
	"time"
)

// An Engine performs single operations on one store for one client.
//
// Every method may be called concurrently with every other one. Acquire,
// Renew, Explain and Release return one answer for each element of the batch,
// in its order, and never fail as a whole: what cannot be told for an element
// is said in that element. They return soon after ctx has ended, with Unknown,
// Unclear or Unconfirmed for whatever had been handed to the store by then.
//
// The names of a batch differ from each other.
type Engine interface {
	// Describe returns the engine's constants. It does no I/O and may be called
	// before Start.
	Describe() Description

	// Start connects and verifies that the store can be used; it creates
	// nothing. What the engine learns unasked goes to sink, from now until Close
	// returns. A Start that failed leaves nothing open and may be repeated.
	Start(ctx context.Context, sink Sink) error

	// Acquire makes one attempt for each request and never waits for a holder.
	Acquire(ctx context.Context, batch []Request) []Answer

	// Renew confirms the terms and prolongs them by their StaleAfter, counted
	// from no earlier than the call.
	Renew(ctx context.Context, batch []Term) []Standing

	// Explain says what became of terms that have ended: Gone with the reason
	// and, where known, by whom. A term that is still in the store is Held; the
	// call changes nothing.
	Explain(ctx context.Context, batch []Term) []Standing

	// Release removes the terms. It also disowns attempts with an unknown
	// outcome: for these Absent means only that the attempt has not arrived yet.
	// Removing a term that is not there is harmless, and no other term of that
	// name is touched.
	Release(ctx context.Context, batch []Term) []Removal

	// Close frees what the engine opened and joins its goroutines. It releases
	// no lock. A second call returns nil.
	Close(ctx context.Context) error
}

// A Sink takes what an engine learns without having been asked. Its methods
// return at once and may be called from any goroutine.
type Sink interface {
	// Lost says that a term has certainly ended. By is the label of whoever
	// ended it, empty where unknown.
	Lost(term Term, reason LossReason, by string, err error)

	// Freed hints that name may be free or its waiting line may have moved. An
	// empty name means any of them, as after a reconnect. A false hint costs one
	// attempt, a missing one costs a poll.
	Freed(name string)
}

// Exec runs one statement inside a transaction of the caller's and returns the
// number of rows that it selected or changed.
type Exec func(ctx context.Context, query string, args ...any) (rows int64, err error)

// A Guarder can tie a transaction in its store to a term.
type Guarder interface {
	// Guard fails with an error matching ErrGone unless the term is in the
	// store, and keeps everybody from taking it over until the transaction
	// behind exec ends.
	Guard(ctx context.Context, term Term, exec Exec) error
}

// A Queuer keeps waiting lines across clients: a Request with Wait that is
// answered with Busy has a place in the line of its name until it is granted
// or leaves.
type Queuer interface {
	// Leave gives up this client's places. An error means that a place may
	// linger; the line passes over it within its bound.
	Leave(ctx context.Context, names []string) error
}

// A Sender can send a lone request and have its answer read by whoever has the
// time. A caller then waits for the store itself, as long as it wants to wait, and
// the answer is seen through by another goroutine when it leaves. Where the store
// answers in a fraction of a millisecond, waking goroutines up is a good part of an
// acquisition.
type Sender interface {
	// Send sends a request if that takes no waiting, and returns nil otherwise.
	Send(r Request) Sent
}

// Sent is a request under way, used by one goroutine at a time.
type Sent interface {
	// Await waits for the answer until ctx ends. It reports whether Answer will
	// return without asking the store for more.
	Await(ctx context.Context) bool

	// Answer returns what Acquire would have, waiting for it until ctx ends. It
	// has to be called, once.
	Answer(ctx context.Context) Answer
}

// An Inspector can look at the whole store.
type Inspector interface {
	// List yields every lock with its status by the store's clock, by name. It
	// ends at the first error, which it yields.
	List(ctx context.Context) iter.Seq2[Status, error]

	// Inspect returns the status of one name; an unheld one has StateFree.
	Inspect(ctx context.Context, name string) (Status, error)

	// History yields ended holds, the newest first; all names when name is
	// empty. It ends at the first error, which it yields.
	History(ctx context.Context, name string) iter.Seq2[PastHold, error]
}

// A Forcer can end somebody else's hold.
type Forcer interface {
	// ForceRelease ends the very term that seen shows. An error matching ErrGone
	// means that the name is free, one matching ErrChanged that it changed
	// hands since.
	ForceRelease(ctx context.Context, seen Status, how Force) error
}

// Force says how a ForceRelease is done.
type Force struct {
	By     string // who asks, recorded in the history
	Reason string // why, recorded in the history; may be empty
	Now    bool   // remove the term at once instead of asking its holder to stop
}

// Description holds an engine's constants.
type Description struct {
	Name     string // "lease", "advisory", "memory", "local"
	Defaults Timing

	// StaleAfter is refused outside of these; zero means no limit.
	MinStaleAfter, MaxStaleAfter time.Duration

	// TrustCap bounds the time for which a hold may be trusted by what other
	// programs on the same store take for stale: a hold is trusted for 2/3 of
	// min(StaleAfter, TrustCap). Zero means that nobody else is there.
	TrustCap time.Duration

	// Elapsed reads a clock that never goes back and counts time during which
	// the host was suspended. Nil means the time package, which is what code
	// inside testing/synctest needs.
	Elapsed func() time.Duration

	// A name, its namespace included, may have at most NameLimit characters, or
	// bytes where NameBytes is set.
	NameLimit int
	NameBytes bool

	// MaxHolds is the default limit of holds in one client; zero means none.
	MaxHolds int

	// Detached promises that Acquire and Release go on by themselves when their
	// context ends, at no cost to anybody else, and that Release then finds what
	// such an Acquire brings. They are called with the context of a caller, one
	// element at a time: batches would gain nothing. Other engines get contexts
	// that end for nobody's impatience.
	Detached bool

	Shared        bool // understands Request.Shared
	PerHoldTiming bool // StaleAfter may differ between the holds of one client
	Tokens        bool // grants carry a fencing token
}

// Timing is a set of intervals.
type Timing struct {
	Heartbeat    time.Duration // between two renewals
	AlertAfter   time.Duration // without a heartbeat, somebody is told
	StaleAfter   time.Duration // without a heartbeat, anybody may take over
	PollInterval time.Duration // between two attempts of a waiter that no hint reaches
}
