package memory

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"sync"
	"time"

	"github.com/pgmutex/pgmutex/engine"
)

// A Store is a database of locks that lives as long as the value does. Its
// methods may be called concurrently with each other and with every call of
// its clients. Names are as stored: with Options.Namespace "jobs", the lock
// "report" is "jobs/report" here.
type Store struct {
	// mu is never held across a wait or a call of a sink: a goroutine that waits
	// for a mutex is not durably blocked, so a bubble's clock would stand still,
	// and a sink may call back. Everything below and in every process belongs
	// to it.
	mu sync.Mutex

	rows      map[string][]*row // by name, in the order of their grants
	lines     map[string]*line  // by name, only those with somebody in them
	processes map[*process]struct{}
	past      past

	token int64 // of the latest grant
	beat  int64 // number of the latest heartbeat written to any row

	everybody Faults
	faults    map[string]Faults // by label, instead of everybody
	parked    map[chan struct{}]struct{}
	notices   []notice // what the next unlock tells
}

// New returns an empty, healthy store. There is nothing to close but the
// clients that are opened on it.
func New() *Store {
	return &Store{
		rows:      make(map[string][]*row),
		lines:     make(map[string]*line),
		processes: make(map[*process]struct{}),
		past:      past{byID: make(map[string]*ending)},
		faults:    make(map[string]Faults),
		parked:    make(map[chan struct{}]struct{}),
	}
}

// Engine returns one process's view of the store, for pgmutex.New. Each client
// needs one of its own.
func (s *Store) Engine() engine.Engine { return s.engine("") }

func (s *Store) engine(label string) *process {
	return &process{store: s, label: label, alarms: make(map[*alarm]struct{})}
}

// A row is one hold. An exclusive row is alone under its name.
type row struct {
	term       engine.Term
	process    *process // nil for the stranger of Lose
	acquiredAt time.Time
	beatAt     time.Time
	beat       int64 // Store.beat when beatAt was written
	heartbeat  time.Duration
	alertAfter time.Duration
	details    map[string]string

	// ended is set by Lose where the row outlives the hold: it can no longer be
	// renewed or guarded, but keeps others out until it is stale or released.
	ended engine.LossReason

	stop               bool
	stopBy, stopReason string
}

func (r *row) age(now time.Time) time.Duration { return now.Sub(r.beatAt) }

func (r *row) stale(now time.Time) bool { return r.age(now) > r.term.StaleAfter }

func (r *row) left(now time.Time) time.Duration { return r.term.StaleAfter - r.age(now) }

// touch writes a heartbeat. Every one has a number of its own, so that two
// heartbeats within one tick of the clock still differ.
func (s *Store) touch(r *row, at time.Time) {
	s.beat++
	r.beat, r.beatAt = s.beat, at
}

func (s *Store) insert(r *row) {
	s.rows[r.term.Name] = append(s.rows[r.term.Name], r)
}

func (s *Store) find(name, id string) *row {
	for _, r := range s.rows[name] {
		if r.term.ID == id {
			return r
		}
	}
	return nil
}

// remove deletes r and files how it ended. It does not offer the lock to the
// line: a takeover removes and inserts in one step.
func (s *Store) remove(r *row, now time.Time, how ending) {
	name := r.term.Name
	kept := make([]*row, 0, len(s.rows[name]))
	for _, other := range s.rows[name] {
		if other != r {
			kept = append(kept, other)
		}
	}
	if len(kept) == 0 {
		delete(s.rows, name)
	} else {
		s.rows[name] = kept
	}
	how.Name, how.Holder, how.Term, how.Token = name, labelOf(r.term.ID), r.term.ID, r.term.Token
	how.AcquiredAt, how.EndedAt = wall(r.acquiredAt), wall(now)
	how.lossBy = how.By
	if r.ended != "" { // what Lose said stays true, whoever cleans up
		how.loss, how.lossBy = r.ended, ""
	}
	s.past.add(how)
}

// A notice is a call of a sink that is owed.
type notice struct {
	to   *process
	tell func(engine.Sink)
}

// tell owes p a call of its sink, made by the next unlock. What would have to
// cross a partition is lost, as a notification on a broken connection is.
func (s *Store) tell(p *process, call func(engine.Sink)) {
	if p == nil || p.sink == nil || p.closed || s.faultsOf(p).Partitioned {
		return
	}
	p.pending++
	s.notices = append(s.notices, notice{p, call})
}

// unlock gives up mu and then makes the calls that are owed. Concurrent unlocks
// may deliver in any order: hints have none, and a loss is final.
func (s *Store) unlock() {
	notices := s.notices
	s.notices = nil
	s.mu.Unlock()
	if len(notices) == 0 {
		return
	}
	for _, n := range notices {
		n.tell(n.to.sink) // written before the notice and never again
	}
	s.mu.Lock()
	for _, n := range notices {
		n.to.settle()
	}
	s.mu.Unlock()
}

// labelOf cuts LABEL off LABEL~NONCE.
func labelOf(id string) string {
	if i := strings.LastIndexByte(id, '~'); i >= 0 {
		return id[:i]
	}
	return id
}

// wall is a time as a database gives it out: UTC, without a monotonic reading.
func wall(t time.Time) time.Time { return t.UTC().Round(0) }

// lockID is the 63-bit id that every engine derives from a name.
func lockID(name string) int64 {
	sum := sha256.Sum256([]byte(name))
	return int64(binary.BigEndian.Uint64(sum[:8]) &^ (1 << 63))
}
