package doctor

import (
	"fmt"
	"strings"
	"time"
)

func (f *Facts) listen(r *report) {
	switch {
	case f.NotifyHeard:
		r.ok("listen", "a notification was heard after %s", f.NotifyTook.Round(10*time.Microsecond))
	case !f.NotifyTried && f.Pooling != Direct:
		r.add("listen", Note, "not used behind a pooler: waiters poll", "connect to the server itself")
	case f.Standby:
		r.add("listen", Note, "a standby does not take LISTEN", "connect to the primary")
	case f.NotifyErr != "":
		r.add("listen", Warning, "a notification could not be sent or heard: "+f.NotifyErr, "see what stands between this host and the server; waiters poll meanwhile")
	default:
		r.add("listen", Warning, "a notification was sent and did not arrive", "see what stands between this host and the server; waiters poll meanwhile")
	}
}

func (f *Facts) keepalive(r *report) {
	if f.Socket {
		r.ok("keepalive", "connected over a Unix socket, which needs none")
		return
	}
	// Zero is the operating system's default: two hours, or so.
	idle := f.duration("tcp_keepalives_idle", time.Second)
	interval := f.duration("tcp_keepalives_interval", time.Second)
	count := f.number("tcp_keepalives_count")
	user := f.duration("tcp_user_timeout", time.Millisecond)
	bound := idle + time.Duration(count)*interval
	found := fmt.Sprintf("tcp_keepalives_idle %s, interval %s, count %d, tcp_user_timeout %s", zero(idle), zero(interval), count, zero(user))
	switch known := idle > 0 && interval > 0 && count > 0; {
	case f.Advisory || f.Pooling == Direct:
		r.ok("keepalive", "%s; our sessions set their own", found)
	case known && bound <= longKeepalive:
		r.ok("keepalive", "%s: a host that is gone is noticed within %s", found, bound)
	default:
		r.add("keepalive", Note, found+": idle sessions of a host that is gone stay for long; its leases go stale all the same",
			"ALTER SYSTEM SET tcp_keepalives_idle = 60, tcp_keepalives_interval = 10 and tcp_keepalives_count = 6, then SELECT pg_reload_conf()")
	}
}

func zero(d time.Duration) string {
	if d == 0 {
		return "the system's"
	}
	return d.String()
}

func (f *Facts) timeouts(r *report) {
	var set []string
	short := false
	for _, name := range []string{
		"statement_timeout", "lock_timeout", "idle_session_timeout", "idle_in_transaction_session_timeout", "transaction_timeout",
	} {
		if d := f.duration(name, time.Millisecond); d > 0 {
			set = append(set, fmt.Sprintf("%s %s", name, d))
			short = short || (name == "statement_timeout" || name == "transaction_timeout") && d < shortTimeout
		}
	}
	list := strings.Join(set, ", ")
	switch {
	case set == nil:
		r.ok("timeouts", "none is set for role %s", f.Role)
	case f.Pooling == Direct:
		r.ok("timeouts", "%s; sessions of pgmutex set their own", list)
	case short:
		r.add("timeouts", Warning, list+": behind the pooler that ends heartbeats which a busy server answers late",
			fmt.Sprintf("ALTER ROLE %s SET statement_timeout = '%s', or longer", ident(f.Role), shortTimeout))
	default:
		r.ok("timeouts", "%s", list)
	}
}

func (f *Facts) lockTable(r *report) {
	perTransaction := f.number("max_locks_per_transaction")
	connections := f.number("max_connections")
	prepared := f.number("max_prepared_transactions")
	room := perTransaction * (connections + prepared)
	if room <= 0 {
		return // the server did not say
	}
	used := float64(f.LocksUsed) / float64(room)
	found := fmt.Sprintf("%d of about %d entries of the server's lock table are in use, %d of them advisory", f.LocksUsed, room, f.AdvisoryUsed)
	fix := fmt.Sprintf("find who takes that many (SELECT pid, count(*) FROM pg_locks GROUP BY 1 ORDER BY 2 DESC), or "+
		"ALTER SYSTEM SET max_locks_per_transaction = %d and restart", 2*perTransaction)
	switch {
	case used >= lockTableError:
		r.add("lock table", Error, found, fix)
	case used >= lockTableWarning:
		r.add("lock table", Warning, found, fix)
	default:
		r.ok("lock table", "%s", found)
	}
}

func (f *Facts) snapshots(r *report) {
	worst := OK
	for _, s := range f.Oldest {
		state := OK
		switch {
		case s.Age >= snapshotWarning, s.Xids >= xidsWarning:
			state = Warning
		case s.Age >= snapshotNote:
			state = Note
		}
		if state.rank() > worst.rank() {
			worst = state
		}
		if state == OK {
			continue
		}
		age := fmt.Sprintf("%d transactions", s.Xids)
		if s.Age > 0 {
			age = fmt.Sprintf("%s, %s", s.Age.Round(time.Second), age)
		}
		r.add("long transactions", state, s.What+" keeps a snapshot for "+age+": every heartbeat since then takes room", s.End)
	}
	switch {
	case worst != OK:
	case !f.ActivityVisible:
		r.ok("long transactions", "none by the age of their snapshots; this role is not shown when those of others began (pg_read_all_stats)")
	default:
		r.ok("long transactions", "none that would keep the server from cleaning up")
	}
}

func (f *Facts) vacuum(r *report) {
	found := fmt.Sprintf("%d rows, %d dead versions", f.Live, f.Dead)
	switch {
	case f.Settings["autovacuum"] == "off":
		r.add("autovacuum", Warning, "off for the whole server; "+found, "ALTER SYSTEM SET autovacuum = on, then SELECT pg_reload_conf()")
	case f.AutovacuumOff:
		r.add("autovacuum", Warning, "off for "+f.Table+"; "+found, "ALTER TABLE "+f.relation("")+" RESET (autovacuum_enabled)")
	case f.Dead > fewDead && f.Dead > deadPerLive*max(f.Live, 1):
		r.add("autovacuum", Warning, "it does not keep up: "+found, "end long transactions, then VACUUM "+f.relation(""))
	default:
		r.ok("autovacuum", "on; %s", found)
	}
}

func (f *Facts) hot(r *report) {
	if f.Updates < enoughUpdates {
		r.ok("heartbeats in place", "%d updates so far are too few to tell", f.Updates)
		return
	}
	ratio := float64(f.HOT) / float64(f.Updates)
	found := fmt.Sprintf("%.0f %% of %d updates stayed on their page", 100*ratio, f.Updates)
	if ratio < goodHOT {
		r.add("heartbeats in place", Warning, found, "end long transactions, see that fillfactor is 50 (pgmutex init), and VACUUM FULL "+f.relation("")+" once, in a quiet moment")
		return
	}
	r.ok("heartbeats in place", "%s", found)
}
