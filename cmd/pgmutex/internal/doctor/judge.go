package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	oldestServer = 140000 // what is tested

	// Clocks that differ disturb nobody but readers: every decision is made by
	// one clock. By how much that is worth a line.
	clockNote    = time.Second
	clockWarning = time.Minute

	// A snapshot keeps all versions of the lock rows since it was taken, one for
	// each heartbeat.
	snapshotNote    = 5 * time.Minute
	snapshotWarning = time.Hour
	xidsWarning     = 1_000_000

	lockTableWarning = 0.7
	lockTableError   = 0.95

	// Fewer updates and rows than these say nothing.
	enoughUpdates = 1000
	fewDead       = 10_000
	deadPerLive   = 20
	goodHOT       = 0.8

	// A role's statement timeout below this ends statements that a busy server
	// answers late, behind a pooler, where our sessions cannot lift it.
	shortTimeout = 5 * time.Second

	// How long the server may take to notice that a client's host is gone.
	longKeepalive = 5 * time.Minute
)

// Judge says what the facts mean, in a fixed order of names. It does no I/O.
func (f *Facts) Judge() []Finding {
	var r report
	f.server(&r)
	f.pooler(&r)
	f.commits(&r)
	f.clock(&r)
	if !f.Advisory {
		f.tables(&r)
	}
	f.listen(&r)
	f.keepalive(&r)
	f.timeouts(&r)
	f.lockTable(&r)
	f.snapshots(&r)
	if !f.Advisory && f.There {
		f.vacuum(&r)
		f.hot(&r)
	}
	return r.list
}

func (f *Facts) server(r *report) {
	if f.Version < oldestServer {
		r.add("version", Warning, "PostgreSQL "+f.VersionText+" is older than what is tested", "upgrade to PostgreSQL 14 or newer")
	} else {
		r.ok("version", "PostgreSQL %s", f.VersionText)
	}
	switch {
	case f.Standby:
		r.add("primary", Error, "the server is a standby: no lock can be taken there",
			"connect to the primary, or name all hosts and add target_session_attrs=read-write")
	case f.Settings["default_transaction_read_only"] == "on":
		r.add("primary", Error, "sessions of role "+f.Role+" are read-only (default_transaction_read_only)",
			"ALTER ROLE "+ident(f.Role)+" SET default_transaction_read_only = off, or see whether the database is being moved")
	default:
		r.ok("primary", "the server is a primary and takes writes")
	}
}

func (f *Facts) pooler(r *report) {
	switch {
	case f.Pooling == Direct:
		r.ok("pooler", "none in between")
	case f.Advisory:
		r.add("pooler", Error, fmt.Sprintf("a connection pooler in %s mode stands in between: advisory locks belong to sessions that it passes on", f.Pooling),
			"connect to the server itself, or use --engine lease")
	case f.Pooling == Session:
		r.add("pooler", Note, "a connection pooler stands in between, in session mode as far as can be seen: no LISTEN, so waiters poll",
			"connect to the server itself if a released lock should be taken at once")
	default:
		r.add("pooler", Note, fmt.Sprintf("a connection pooler in %s mode stands in between: no LISTEN, so waiters poll", f.Pooling),
			"connect to the server itself if a released lock should be taken at once")
	}
}

func (f *Facts) commits(r *report) {
	switch level := f.Settings["default_transaction_isolation"]; level {
	case "read committed", "":
		r.ok("isolation", "read committed by default")
	default:
		r.add("isolation", Note, "the default is "+level+"; sessions of pgmutex use read committed, those behind a pooler repeat what fails for it",
			"nothing, or ALTER ROLE "+ident(f.Role)+" SET default_transaction_isolation = 'read committed'")
	}
	switch level := f.Settings["synchronous_commit"]; level {
	case "off":
		r.add("synchronous_commit", Note, "off; statements on locks turn it on for themselves, since a crash must not forget a lock", "nothing")
	default:
		r.ok("synchronous_commit", "%s", level)
	}
	if f.Settings["fsync"] == "off" {
		r.add("fsync", Error, "off: after a crash of the host a lock that is held may be free, or the database unusable",
			"ALTER SYSTEM SET fsync = on, then SELECT pg_reload_conf()")
	} else {
		r.ok("fsync", "on")
	}
}

func (f *Facts) clock(r *report) {
	off := f.ClockOffset.Abs()
	exact := (f.RoundTrip / 2).Round(10 * time.Microsecond)
	found := fmt.Sprintf("the server's clock is %s %s (within %s)", off.Round(time.Millisecond), direction(f.ClockOffset), exact)
	switch fix := "run a time service (chrony, systemd-timesyncd) on both hosts"; {
	case off-exact > clockWarning:
		r.add("clock", Warning, found+": times in logs and in the history do not match; locks are not affected", fix)
	case off-exact > clockNote:
		r.add("clock", Note, found+"; locks are not affected", fix)
	default:
		r.ok("clock", "%s", found)
	}
}

func direction(offset time.Duration) string {
	if offset < 0 {
		return "behind ours"
	}
	return "ahead of ours"
}

func (f *Facts) tables(r *report) {
	switch {
	case f.Problem != "" && !f.RightsOnly:
		r.add("schema", Error, f.Problem, f.Fix)
	case f.HaveVersion:
		r.ok("schema", "%s has version %d, with all columns and types as expected", f.Table, f.SchemaVersion)
	default:
		r.ok("schema", "%s is as expected", f.Table)
	}
	if !f.There {
		return
	}
	f.indexes(r)
	f.rights(r)
}

func (f *Facts) indexes(r *report) {
	var missing, fixes []string
	for _, want := range []struct{ sorted, columns string }{
		{"lock_name,locked", "(locked, lock_name)"}, {"instance_id,lock_name", "(lock_name, instance_id)"},
	} {
		if !slices.Contains(f.Uniques, want.sorted) {
			missing = append(missing, want.columns)
			fixes = append(fixes, "CREATE UNIQUE INDEX ON "+f.relation("")+" "+want.columns)
		}
	}
	if missing != nil {
		r.add("unique index", Error, "there is no valid, immediate unique index on "+strings.Join(missing, " nor on ")+
			": two could hold one lock", strings.Join(fixes, "; "))
	} else {
		r.ok("unique index", "(locked, lock_name) and (lock_name, instance_id) are unique")
	}
	if len(f.HeartbeatIndex) > 0 {
		r.add("heartbeat index", Error, "index "+strings.Join(f.HeartbeatIndex, ", ")+" covers last_heartbeat: each heartbeat writes to all indexes",
			"DROP INDEX "+strings.Join(f.HeartbeatIndex, ", "))
	} else {
		r.ok("heartbeat index", "none, so heartbeats stay on their page")
	}
}

// rights tells of each operation that the role may not carry out.
func (f *Facts) rights(r *report) {
	if !f.SchemaUsage {
		r.add("privileges", Error, "role "+f.Role+" may not use schema "+f.Schema,
			"GRANT USAGE ON SCHEMA "+ident(f.Schema)+" TO "+ident(f.Role))
	}
	all := f.SchemaUsage
	for _, op := range operations {
		lacks := map[string][]string{} // by suffix
		var order []string
		for _, need := range op.needs {
			suffix, privilege, _ := strings.Cut(need, ":")
			if may, there := f.Rights[need]; there && !may {
				if lacks[suffix] == nil {
					order = append(order, suffix)
				}
				lacks[suffix] = append(lacks[suffix], privilege)
			}
		}
		if order == nil {
			continue
		}
		all = false
		var grants []string
		for _, suffix := range order {
			object := f.relation(suffix)
			if suffix == "_token" {
				object = "SEQUENCE " + object
			}
			grants = append(grants, "GRANT "+strings.Join(lacks[suffix], ", ")+" ON "+object+" TO "+ident(f.Role))
		}
		r.add("privileges: "+op.name, Error, "role "+f.Role+" lacks rights for it", strings.Join(grants, "; "))
	}
	if all {
		names := make([]string, len(operations))
		for i, op := range operations {
			names[i] = op.name
		}
		r.ok("privileges", "role %s may %s", f.Role, strings.Join(names, ", "))
	}
}

func (f *Facts) relation(suffix string) string {
	return pgx.Identifier{f.Schema, f.Name + suffix}.Sanitize()
}

func ident(name string) string { return pgx.Identifier{name}.Sanitize() }
