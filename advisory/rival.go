package advisory

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pgmutex/pgmutex/engine"
)

// A keyHolder is a session that holds a key, as pg_locks and pg_stat_activity
// show it to this role.
type keyHolder struct {
	key     int64
	pid     int64
	shared  bool
	ours    bool // it wakes up waiters
	waiters int
	app     string
	role    string
	address string
	started []byte // microseconds, nil where hidden
	asked   bool   // to give the key back
}

// holders reads rows of holders.sql.
func holders(rows []row) []keyHolder {
	var all []keyHolder
	for _, r := range rows {
		if len(r) != 10 {
			continue
		}
		all = append(all, keyHolder{
			key: number(r[0]), pid: number(r[1]), shared: truth(r[2]), ours: truth(r[3]), waiters: int(number(r[4])),
			app: string(r[5]), role: string(r[6]), address: string(r[7]), started: r[8], asked: truth(r[9]),
		})
	}
	return all
}

// label is the label of a client of ours, and otherwise what the session calls
// itself. It is information: the server cuts it, and anybody may choose it.
func (k keyHolder) label() string {
	if k.ours {
		return strings.TrimPrefix(k.app, "pgmutex ")
	}
	return k.app
}

// termID names the session that holds the key: no two sessions have the same, and
// ForceRelease finds it by it. It names no single acquisition.
func (k keyHolder) termID() string {
	started := string(k.started)
	if k.started == nil {
		started = "hidden"
	}
	return fmt.Sprintf("%s~%d.%s", k.label(), k.pid, started)
}

// sessionOf reads what termID has written; started is nil where it was hidden.
func sessionOf(termID string) (pid int64, started any, ok bool) {
	_, after, _ := cutLast(termID, "~")
	number, start, found := strings.Cut(after, ".")
	pid, err := strconv.ParseInt(number, 10, 32)
	if !found || err != nil {
		return 0, nil, false
	}
	if start == "hidden" {
		return pid, nil, true
	}
	micros, err := strconv.ParseInt(start, 10, 64)
	return pid, micros, err == nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

func (k keyHolder) details() map[string]string {
	d := map[string]string{"backend_pid": strconv.FormatInt(k.pid, 10)}
	for name, value := range map[string]string{"application": k.app, "role": k.role, "address": k.address} {
		if value != "" {
			d[name] = value
		}
	}
	if k.started != nil {
		d["session_start"] = moment(k.started).Format(time.RFC3339)
	}
	return d
}

// ourRival is a hold of this very client.
func (s *session) ourRival(h *holding) *engine.Rival {
	return s.e.fresh(&engine.Rival{
		Holder: engine.Label(h.term.ID), ID: h.term.ID, Since: h.at,
		StaleAfter: h.term.StaleAfter, Interval: h.request.Heartbeat, Details: h.request.Details,
	})
}

// fresh gives a rival a heartbeat of its own. That the lock was found held proves
// that the session lives, so its age is always zero; when it will be free cannot be
// known.
func (e *store) fresh(r *engine.Rival) *engine.Rival {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.looks++
	r.Heartbeat = strconv.FormatInt(e.looks, 10)
	return r
}

// describe says who is in the way. Not knowing it is no failure, but then nobody
// is known to wake us up either.
func (s *session) describe(id int64, r engine.Request, answer engine.Answer) engine.Answer {
	if s.isOver() {
		return answer
	}
	rows, _ := s.query(s.e.sql.holders, id)
	all := holders(rows)
	if len(all) == 0 {
		// Free by now, or we may not look.
		answer.Hinted = false
		return answer
	}
	for _, k := range all {
		answer.Hinted = answer.Hinted && k.ours
	}
	k := all[0]
	rival := engine.Rival{Holder: k.label(), ID: k.termID(), Details: k.details()}
	if k.ours {
		// What clients of ours agree on, if nobody has changed it. Other programs
		// promise nothing.
		rival.StaleAfter = r.Term.StaleAfter
	}
	answer.Holder = s.e.fresh(&rival)
	return answer
}
