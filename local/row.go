package local

import (
	"database/sql"
	"encoding/json"
	"strconv"
	"time"

	"github.com/pgmutex/pgmutex/engine"
)

// A row is one hold. A name has one at most.
type row struct {
	name, term string
	token      int64
	boot       string
	sinceWall  int64
	beat       int64
	beatAt     time.Duration
	beatWall   int64
	staleAfter time.Duration
	heartbeat  time.Duration
	alertAfter time.Duration
	details    string
	stopBy     sql.NullString
	stopReason string
}

const rowColumns = `name, term, token, boot, since_wall, beat, beat_at, beat_wall,
	stale_after, heartbeat, alert_after, details, stop_by, stop_reason`

func (r *row) fields() []any {
	return []any{&r.name, &r.term, &r.token, &r.boot, &r.sinceWall, &r.beat, &r.beatAt, &r.beatWall,
		&r.staleAfter, &r.heartbeat, &r.alertAfter, &r.details, &r.stopBy, &r.stopReason}
}

const selectRow = `SELECT ` + rowColumns + ` FROM lock WHERE name = ?`

// find returns the hold of name, nil without one.
func (d *database) find(name string) (*row, error) {
	r := new(row)
	found, err := d.row(selectRow, name).found(r.fields()...)
	if err != nil || !found {
		return nil, err
	}
	return r, nil
}

const insertRow = `INSERT INTO lock (` + rowColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, '')`

func (d *database) insert(r *row) error {
	err := d.run(insertRow, r.name, r.term, r.token, r.boot, r.sinceWall, r.beat, int64(r.beatAt),
		r.beatWall, int64(r.staleAfter), int64(r.heartbeat), int64(r.alertAfter), r.details)
	return err
}

// The term is named wherever a row is changed, so that no other hold of the name
// can be meant.
const deleteRow = `DELETE FROM lock WHERE name = ? AND term = ?`

// remove deletes r and files how it ended.
func (d *database) remove(r *row, now moment, how engine.End, by, reason string) error {
	if err := d.run(deleteRow, r.name, r.term); err != nil {
		return err
	}
	return d.file(&event{
		name: r.name, term: r.term, token: r.token,
		sinceWall: r.sinceWall, endedWall: now.wall.UnixNano(),
		how: string(how), by: by, reason: reason,
	})
}

// released files r as given back by its holder; if somebody had asked for that,
// as that one's doing.
func (d *database) released(r *row, now moment) error {
	how := engine.EndReleased
	if r.stopBy.Valid {
		how = engine.EndForced
	}
	return d.remove(r, now, how, r.stopBy.String, r.stopReason)
}

// An era says how a row's times relate to ours.
type era uint8

const (
	sameBoot    era = iota
	otherBoot       // its holder is no more
	unknownBoot     // not told, by it or by us: its times say nothing
)

func (r *row) era(now moment) era {
	switch {
	case r.boot == "" || now.boot == "":
		return unknownBoot
	case r.boot != now.boot:
		return otherBoot
	}
	return sameBoot
}

// age is that of the latest heartbeat. It decides for a row of this boot only,
// and is what the wall clock makes of it for others.
func (r *row) age(now moment) time.Duration {
	if r.era(now) == sameBoot {
		return max(0, now.at-r.beatAt)
	}
	return max(0, time.Duration(now.wall.UnixNano()-r.beatWall))
}

// stale tells whether anybody may take over by the store's clock alone.
func (r *row) stale(now moment) bool {
	switch r.era(now) {
	case otherBoot:
		return true
	case sameBoot:
		return r.age(now) > r.staleAfter
	}
	return false
}

// value names this heartbeat of this term.
func (r *row) value() string { return r.term + "#" + strconv.FormatInt(r.beat, 10) }

// rival shows r to a contender. The age is what the contender will subtract from
// what it has to wait: nothing where that cannot be known.
func (r *row) rival(now moment) *engine.Rival {
	age := time.Duration(0)
	switch r.era(now) {
	case sameBoot:
		age = r.age(now)
	case otherBoot:
		age = r.staleAfter + 1
	}
	return &engine.Rival{
		Holder:     engine.Label(r.term),
		ID:         r.term,
		Since:      wall(r.sinceWall),
		Heartbeat:  r.value(),
		Age:        age,
		StaleAfter: r.staleAfter,
		Interval:   r.heartbeat,
		Details:    unpack(r.details),
	}
}

func wall(ns int64) time.Time { return time.Unix(0, ns).UTC() }

func pack(details map[string]string) (string, error) {
	if len(details) == 0 {
		return "", nil
	}
	text, err := json.Marshal(details)
	return string(text), err
}

// unpack returns nil for details that nobody can read: they decide nothing.
func unpack(text string) map[string]string {
	if text == "" {
		return nil
	}
	var details map[string]string
	if json.Unmarshal([]byte(text), &details) != nil {
		return nil
	}
	return details
}
