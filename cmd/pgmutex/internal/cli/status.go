package cli

import (
	"strconv"
	"time"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/store"
)

// statusJSON is a lock in JSON: times in RFC 3339, durations in seconds, and the
// two 63-bit numbers as strings, since many readers of JSON round numbers.
type statusJSON struct {
	Name         string            `json:"name"`
	ID           string            `json:"id"`
	Engine       string            `json:"engine"`
	State        pgmutex.State     `json:"state"`
	Holder       string            `json:"holder,omitempty"`
	Term         string            `json:"term,omitempty"`
	Token        string            `json:"token,omitempty"`
	Shared       bool              `json:"shared,omitempty"`
	Since        *time.Time        `json:"since,omitempty"`
	HeartbeatAge *float64          `json:"heartbeat_age,omitempty"`
	Remaining    *float64          `json:"remaining,omitempty"`
	Heartbeat    *float64          `json:"heartbeat,omitempty"`
	AlertAfter   *float64          `json:"alert_after,omitempty"`
	StaleAfter   *float64          `json:"stale_after,omitempty"`
	Waiters      int               `json:"waiters"`
	StopAsked    bool              `json:"stop_asked,omitempty"`
	Details      map[string]string `json:"details,omitempty"`
}

func statusObject(s pgmutex.Status) statusJSON {
	o := statusJSON{
		Name: s.Name, ID: strconv.FormatInt(s.ID, 10), Engine: s.Engine, State: s.State,
		Holder: s.Holder, Term: s.Term, Token: number(s.Token), Shared: s.Shared,
		Waiters: s.Waiters, StopAsked: s.StopAsked, Details: s.Details,
	}
	if !s.Since.IsZero() {
		o.Since = &s.Since
	}
	if s.State != pgmutex.StateFree && s.Details[backend] == "" {
		age, remaining := seconds(s.HeartbeatAge), seconds(s.Remaining)
		o.HeartbeatAge, o.Remaining = &age, &remaining
		for _, d := range []struct {
			to *(*float64)
			v  time.Duration
		}{{&o.Heartbeat, s.Heartbeat}, {&o.AlertAfter, s.AlertAfter}, {&o.StaleAfter, s.StaleAfter}} {
			if d.v > 0 {
				v := seconds(d.v)
				*d.to = &v
			}
		}
	}
	return o
}

// waiterJSON is one place in the waiting line.
type waiterJSON struct {
	Place   int     `json:"place"`
	Holder  string  `json:"holder"`
	Seen    float64 `json:"seen"` // seconds ago
	Offered bool    `json:"offered,omitempty"`
}

// shownJSON is a lock and its waiting line, where the store shows that.
type shownJSON struct {
	statusJSON
	Line []waiterJSON `json:"line,omitempty"`
}

func shownObject(s pgmutex.Status, line []store.Waiter) shownJSON {
	o := shownJSON{statusJSON: statusObject(s)}
	for i, w := range line {
		o.Line = append(o.Line, waiterJSON{Place: i + 1, Holder: w.Holder, Seen: seconds(w.Seen), Offered: w.Offered})
	}
	return o
}

// number is empty for what is not known.
func number(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// cell is a column's value; "-" stands for none.
func cell(s string) string {
	if s == "" {
		return "-"
	}
	return word(s)
}
