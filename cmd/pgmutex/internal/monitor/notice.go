package monitor

import (
	"fmt"
	"strconv"
	"time"

	"github.com/pgmutex/pgmutex"
)

// Events of a Notice.
const (
	Fired   = "fired"
	Cleared = "cleared"
)

// Reasons of a Notice with the event Cleared.
const (
	heardAgain = "heard again"
	gone       = "gone"
)

// A Notice is what is told about a hold; the JSON of webhooks, and what commands
// read. Ages and times are by the store's clock, durations in seconds.
type Notice struct {
	ID           string            `json:"id"`    // the same for everything about one hold
	Event        string            `json:"event"` // fired or cleared
	Text         string            `json:"text"`  // in one line, for people
	Lock         string            `json:"lock"`
	Holder       string            `json:"holder"`
	Term         string            `json:"term"`
	Token        string            `json:"token,omitempty"`
	Since        time.Time         `json:"since"`
	HeartbeatAge float64           `json:"heartbeat_age"`
	Threshold    float64           `json:"threshold"`
	Remaining    float64           `json:"remaining"` // until anybody may take the lock over
	Waiters      int               `json:"waiters"`
	Details      map[string]string `json:"details,omitempty"`
	Reason       string            `json:"reason,omitempty"`      // cleared: heard again, or gone
	NextHolder   string            `json:"next_holder,omitempty"` // who holds the lock instead
}

func (a *alert) notice(event string) Notice {
	s := a.status
	n := Notice{
		ID: a.id, Event: event, Lock: s.Name, Holder: s.Holder, Term: s.Term, Since: s.Since,
		HeartbeatAge: s.HeartbeatAge.Seconds(), Threshold: a.threshold.Seconds(), Remaining: s.Remaining.Seconds(),
		Waiters: s.Waiters, Details: s.Details,
	}
	if s.Token != 0 {
		n.Token = strconv.FormatInt(s.Token, 10)
	}
	switch {
	case event == Fired && s.State == pgmutex.StateStale:
		n.Text = fmt.Sprintf("%q: its holder %q%s has been silent for %s; anybody may take the lock over",
			s.Name, s.Holder, where(s.Details), round(s.HeartbeatAge))
	case event == Fired:
		n.Text = fmt.Sprintf("%q: its holder %q%s has been silent for %s; the lock can be taken over in %s",
			s.Name, s.Holder, where(s.Details), round(s.HeartbeatAge), round(s.Remaining))
	case a.reason == heardAgain:
		n.Reason = a.reason
		n.Text = fmt.Sprintf("%q: its holder %q is heard of again", s.Name, s.Holder)
	default:
		n.Reason, n.NextHolder = a.reason, a.by
		n.Text = fmt.Sprintf("%q: %q no longer holds it", s.Name, s.Holder)
		if a.by != "" {
			n.Text += fmt.Sprintf("; %q does", a.by)
		}
	}
	return n
}

func round(d time.Duration) time.Duration {
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Second)
}

// where says where a holder runs, as far as it tells.
func where(details map[string]string) string {
	text := ""
	if host := details["host"]; host != "" {
		text += fmt.Sprintf(" on %q", host)
	}
	if pid := details["pid"]; pid != "" {
		text += fmt.Sprintf(" (pid %q)", pid)
	}
	return text
}
