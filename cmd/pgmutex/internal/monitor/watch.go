package monitor

import (
	"crypto/sha256"
	"encoding/base32"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pgmutex/pgmutex"
)

const (
	// peerHeartbeat and peerAlert stand in for what a holder does not promise:
	// the defaults of the Python package.
	peerHeartbeat = 10 * time.Second
	peerAlert     = 30 * time.Second

	// calm is how long a hold must have been heard of before it alerts again.
	calm = time.Hour

	// remember is how long an alert that has passed is kept for telling.
	remember = 15 * time.Minute
)

// A key names one hold. The term alone would not do: a Python process uses the
// same one for all its holds.
type key struct {
	name, term string
	since      int64
}

func keyOf(s pgmutex.Status) key { return key{s.Name, s.Term, s.Since.UnixMicro()} }

// id names the alert about a hold in messages and in the store; group is the
// common lock of the monitors.
func (k key) id(group string) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{group, k.name, k.term, strconv.FormatInt(k.since, 10)}, "\x00")))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:10]))
}

// An alert is the account of one hold's silence.
type alert struct {
	id        string
	status    pgmutex.Status // as it was last seen
	threshold time.Duration

	over   bool
	overAt time.Time
	reason string
	by     string // who holds the lock instead

	asked            bool // the store knows no more about it than we do
	fired, cleared   bool // told, by us or by others
	lineOf, lineOver bool // and written into the store
	busy             bool // being told
	later            bool // not before the next look
}

// A watch decides what is an alert. It does no I/O and reads no clock.
type watch struct {
	group      string
	alertAfter time.Duration // 0: what each holder asks for
	alerts     map[key]*alert

	failing bool
	resumed time.Time // when looking succeeded again after it had failed
}

// threshold is the silence from which a hold alerts: what was asked for, or what
// the holder asks for, and never less than twice the heartbeat that it promises.
func (w *watch) threshold(s pgmutex.Status) time.Duration {
	after := w.alertAfter
	if after == 0 {
		after = s.AlertAfter
	}
	if after == 0 {
		after = peerAlert
	}
	return max(after, floor(s))
}

// floor is twice the promised heartbeat.
func floor(s pgmutex.Status) time.Duration {
	if s.Heartbeat == 0 {
		return 2 * peerHeartbeat
	}
	return 2 * s.Heartbeat
}

// failed notes that the store could not be looked at.
func (w *watch) failed() { w.failing = true }

// look takes what the store shows at a moment, and returns when the next hold is
// going to alert unless it is heard of, or zero.
func (w *watch) look(now time.Time, held []pgmutex.Status) (next time.Duration) {
	if w.failing {
		// Whatever kept us from the store may have kept the holders from it too.
		w.failing, w.resumed = false, now
	}
	seen := map[key]bool{}
	holder := map[string]string{}
	for _, s := range held {
		k := keyOf(s)
		seen[k] = true
		holder[s.Name] = s.Holder
		threshold := w.threshold(s)
		wait := threshold - s.HeartbeatAge
		if !w.resumed.IsZero() {
			wait = max(wait, floor(s)-now.Sub(w.resumed))
		}
		a := w.alerts[k]
		switch {
		case wait <= 0 && a == nil:
			w.alerts[k] = &alert{id: k.id(w.group), status: s, threshold: threshold}
		case wait <= 0 && !a.over:
			a.status = s
		case wait <= 0:
			if now.Sub(a.overAt) >= calm && !a.busy {
				w.alerts[k] = &alert{id: a.id, status: s, threshold: threshold}
			}
		default:
			if a != nil && !a.over && s.HeartbeatAge < a.threshold {
				a.status = s
				a.end(now, heardAgain, "")
			}
			if next == 0 || wait < next {
				next = wait
			}
		}
	}
	for k, a := range w.alerts {
		a.later = false
		if seen[k] {
			continue
		}
		if !a.over {
			a.end(now, gone, holder[k.name])
		}
		if !a.busy && (a.lineOf && a.lineOver || now.Sub(a.overAt) >= remember) {
			delete(w.alerts, k)
		}
	}
	return next
}

func (a *alert) end(now time.Time, reason, by string) {
	a.over, a.overAt, a.reason, a.by = true, now, reason, by
}

// pending returns the alerts about which something is left to do, by name.
func (w *watch) pending(now time.Time) []*alert {
	var list []*alert
	for _, a := range w.alerts {
		done := a.lineOf && (!a.over || a.lineOver)
		if done || a.busy || a.later || a.over && now.Sub(a.overAt) >= remember {
			continue
		}
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b *alert) int { return strings.Compare(a.status.Name, b.status.Name) })
	return list
}

// recall takes over what the store's history says: when somebody last told the
// alert and its end, zero for never.
func (a *alert) recall(now, fired, cleared time.Time) {
	a.asked = true
	switch {
	case fired.IsZero():
	case !cleared.Before(fired): // both
		if a.over || now.Sub(cleared) < calm {
			a.fired, a.lineOf, a.cleared, a.lineOver = true, true, true, true
		}
		if !a.over && a.lineOver {
			a.end(cleared, heardAgain, "") // it is not to alert again so soon
		}
	default:
		a.fired, a.lineOf = true, true
	}
}

// forget makes the store be asked once more about each alert: others may have told
// it since.
func (w *watch) forget() {
	for _, a := range w.alerts {
		a.asked, a.later = false, false
	}
}

// standing counts the alerts that are not over.
func (w *watch) standing() int {
	n := 0
	for _, a := range w.alerts {
		if !a.over {
			n++
		}
	}
	return n
}
