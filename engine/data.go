package engine

import (
	"errors"
	"time"
)

// ErrGone is matched by errors about a term that is no longer in the store.
var ErrGone = errors.New("no such hold")

// ErrChanged is matched by errors about a name that changed hands since it was
// looked at.
var ErrChanged = errors.New("the lock changed hands")

// A Term names one acquisition.
type Term struct {
	Name       string // as stored, namespace included
	ID         string // LABEL~NONCE, unique for ever
	Token      int64  // 0: none
	Shared     bool
	StaleAfter time.Duration // the promise made for it
}

// A Request asks for one name.
type Request struct {
	Term Term // with no Token yet

	// Heartbeat and AlertAfter are shown to contenders beside Term.StaleAfter.
	Heartbeat  time.Duration
	AlertAfter time.Duration

	// Details are shown to everybody who looks at the hold.
	Details map[string]string

	// Wait says that the caller will wait if the lock is busy: the engine gives
	// it a place in the line if it keeps one, and does not let it overtake those
	// who are in the line already. Without it the request may overtake.
	Wait bool

	// Judge lets the store's own clock decide whether a holder is stale. A
	// waiter that has seen a heartbeat before goes by its own clock instead and
	// leaves it unset.
	Judge bool

	// Take is the Heartbeat of an earlier Answer that may be taken over whatever
	// the store's clock says; empty for none.
	Take string

	// Behind says that this client holds the name itself, as far as it knows, so
	// that an attempt would be in vain: with Wait, a place in the line is all that
	// is asked for. An engine may attempt it all the same.
	Behind bool

	// Own lists IDs of this client's own attempts for the name whose outcome was
	// never learnt; a row of theirs may be taken.
	Own []string
}

// Outcome tells the ends of an attempt apart.
type Outcome uint8

const (
	Unknown Outcome = iota // may have been granted: disown it
	Granted
	Busy    // certainly not granted, somebody else is there
	Refused // certainly not granted, and asking again the same way is no use; see Answer.Err
	Failed  // certainly not granted, for a reason that may pass; see Answer.Err
)

// An Answer is what came of a Request.
type Answer struct {
	Outcome Outcome
	Err     error // for Unknown, Refused and Failed

	// For Granted.
	Token      int64
	AcquiredAt time.Time // by the store's clock
	TookOver   *Rival    // the stale holder that was replaced

	// For Busy; nil where the store could not say.
	Holder *Rival

	// Alone says that the request needs more than a batch of several could do for
	// it: nothing was done, it is to be asked again in a batch of its own, and
	// the rest of the answer is void. An element that has to wait for a row, or
	// for a second statement, need not hold up the others.
	Alone bool

	// For Busy with Request.Wait.
	Hinted  bool          // Sink.Freed will report when it is worth trying again
	RetryIn time.Duration // try again after this at the latest; zero: the caller decides
	Place   int           // in the line, 1 is the next; zero where unknown
}

// A Rival is a holder as seen by a contender.
type Rival struct {
	Holder     string // label
	ID         string // of its term
	Since      time.Time
	Heartbeat  string        // names this very heartbeat of this very term, opaque
	Age        time.Duration // of the heartbeat when the store answered, by its clock
	StaleAfter time.Duration // the rival's own promise
	Interval   time.Duration // its heartbeat interval, zero where it does not say
	Details    map[string]string
}

// Health says whether a term still stands.
type Health uint8

const (
	Unclear Health = iota
	Held
	Gone // for ever
)

// A Standing is what an engine knows about a term.
type Standing struct {
	Health Health
	Err    error // why it is Unclear

	// Reason is, for Gone, why, where that is known; empty for a term that its
	// own client released. For Unclear it is what the loss will be put down to if
	// it stays so until the deadline.
	Reason LossReason
	By     string // label of whoever ended it, where known

	// Stop is set while the holder is asked to stop (Forcer, without Now).
	Stop   bool
	StopBy string
}

// RemovalOutcome tells the ends of a Release apart.
type RemovalOutcome uint8

const (
	Unconfirmed RemovalOutcome = iota // may or may not be there still; see Removal.Err
	Removed
	Absent
)

// A Removal is what came of releasing one term.
type Removal struct {
	Outcome RemovalOutcome
	Err     error
}

// LossReason says why a hold ended without having been released.
type LossReason string

const (
	LostTakenOver    LossReason = "taken over"                // somebody else holds it
	LostExpired      LossReason = "expired while unreachable" // could not be renewed in time
	LostReleased     LossReason = "released by operator"      // ended by ForceRelease
	LostSessionEnded LossReason = "session ended"             // the store ended the session that held it
	LostReadOnly     LossReason = "database read-only or failed over"
	LostRowGone      LossReason = "row gone" // removed by nobody who left a trace
)

// State is the condition of a lock.
type State string

const (
	StateFree  State = "free"
	StateHeld  State = "held"
	StateLate  State = "late"  // no heartbeat for the holder's AlertAfter
	StateStale State = "stale" // anybody may take it over
)

// Status is a lock as its store shows it. Ages and times are by the store's
// clock.
type Status struct {
	Name         string            `json:"name"`
	ID           int64             `json:"id"`
	Engine       string            `json:"engine"`
	State        State             `json:"state"`
	Holder       string            `json:"holder,omitempty"`
	Term         string            `json:"term,omitempty"`
	Token        int64             `json:"token,string,omitempty"` // 0: none, or not written yet
	Shared       bool              `json:"shared,omitempty"`
	Since        time.Time         `json:"since,omitzero"`
	HeartbeatAge time.Duration     `json:"heartbeat_age"`
	Remaining    time.Duration     `json:"remaining"` // until it is stale; never negative
	Heartbeat    time.Duration     `json:"heartbeat"` // what the holder promised; zero where it did not
	AlertAfter   time.Duration     `json:"alert_after"`
	StaleAfter   time.Duration     `json:"stale_after"`
	Waiters      int               `json:"waiters"`
	StopAsked    bool              `json:"stop_asked,omitempty"` // its holder is asked to stop
	Details      map[string]string `json:"details,omitempty"`
}

// PastHold is a hold that has ended.
type PastHold struct {
	Name       string    `json:"name"`
	Holder     string    `json:"holder"`
	Term       string    `json:"term"`
	Token      int64     `json:"token,string,omitempty"`
	AcquiredAt time.Time `json:"acquired_at"`
	EndedAt    time.Time `json:"ended_at"`
	End        End       `json:"end"`
	By         string    `json:"by,omitempty"`     // who ended it, where not its holder
	Reason     string    `json:"reason,omitempty"` // what an operator gave
}

// End says how a hold ended.
type End string

const (
	EndReleased  End = "released"   // by its holder
	EndTakenOver End = "taken over" // after it had gone stale
	EndForced    End = "forced"     // by ForceRelease, or released by its holder because that had asked for it
)
