package lease

import (
	"embed"
	"fmt"
	"regexp"
	"strings"

	"github.com/pgmutex/pgmutex/internal/pgdb"
	"github.com/pgmutex/pgmutex/internal/schema"
)

//go:embed sql/*.sql
var files embed.FS

// statements are all statements of the engine, made once for its table.
type statements struct {
	insert, insertFirst, insertBatch                                pgdb.Statement
	acquire, acquireBatch, take, join, offer, nudge, offered, leave pgdb.Statement
	release, releaseBatch                                           pgdb.Statement
	renew, renewBatch, renewAround                                  pgdb.Statement
	explain, holder                                                 pgdb.Statement
	statusOne, statusAll                                            pgdb.Statement
	historyOne, historyAll                                          pgdb.Statement
	forceRemove, forceStop                                          pgdb.Statement
	timeline, server, raise                                         pgdb.Statement
	pruneEvents, pruneWaiters                                       pgdb.Statement

	guard string
}

const (
	// rowWait bounds the wait for somebody else's row lock.
	rowWait = "100ms"

	// bounded and durable are the settings that a statement needs where its
	// session does not have them. They are made for its own transaction, before
	// its first write, and leave the session as it was. The notice that a commit
	// did not reach the standby has to get through.
	bounded = `opt AS MATERIALIZED (
  SELECT pg_catalog.set_config('lock_timeout', '` + rowWait + `', true)
), `
	durable = `opt AS MATERIALIZED (
  SELECT pg_catalog.set_config('lock_timeout', '` + rowWait + `', true),
         CASE pg_catalog.current_setting('synchronous_commit')
           WHEN 'off' THEN pg_catalog.set_config('synchronous_commit', 'on', true) END,
         CASE pg_catalog.current_setting('client_min_messages')
           WHEN 'error' THEN pg_catalog.set_config('client_min_messages', 'warning', true) END
), `
)

// newStatements reads the files and puts the names in.
func newStatements(names schema.Names) *statements {
	t := texts{names: names.Replacer("{{timeline}}", schema.TimelineSQL)}
	return &statements{
		insert:       t.write("insert", durable),
		insertFirst:  t.write("insert_first", durable),
		insertBatch:  t.write("insert_batch", durable),
		acquire:      t.write("acquire", durable),
		acquireBatch: t.write("acquire_batch", durable),
		take:         t.write("take", durable),
		join:         t.write("join", bounded),
		offer:        t.write("offer", bounded),
		nudge:        t.read("nudge", ""),
		offered:      t.read("offered", ""),
		leave:        t.write("leave", bounded),
		release:      t.write("release", durable),
		releaseBatch: t.write("release_batch", durable),
		renew:        t.write("renew", durable),
		renewBatch:   t.write("renew_batch", durable),
		renewAround:  t.write("renew_around", durable),
		explain:      t.read("explain", ""),
		holder:       t.read("holder", ""),
		statusOne:    t.read("status", "AND t.lock_name = $1::text"),
		statusAll:    t.read("status", "AND $1::text IS NULL"),
		historyOne:   t.read("history", "AND e.lock_name = $1::text"),
		historyAll:   t.read("history", "AND $1::text IS NULL"),
		forceRemove:  t.write("force_remove", durable),
		forceStop:    t.write("force_stop", durable),
		timeline:     t.read("timeline", ""),
		server:       t.read("server", ""),
		raise:        t.write("raise", durable),
		pruneEvents:  t.read("prune_events", ""),
		pruneWaiters: t.read("prune_waiters", ""),
		guard:        t.text("guard", "", ""),
	}
}

// all lists the statements that go through pgdb.
func (s *statements) all() []pgdb.Statement {
	return []pgdb.Statement{
		s.insert, s.insertFirst, s.insertBatch, s.acquire, s.acquireBatch, s.take, s.join, s.offer, s.nudge, s.offered, s.leave, s.release, s.releaseBatch, s.renew, s.renewBatch,
		s.renewAround, s.explain, s.holder, s.statusOne, s.statusAll, s.historyOne, s.historyAll, s.forceRemove, s.forceStop,
		s.timeline, s.server, s.raise, s.pruneEvents, s.pruneWaiters,
	}
}

// texts makes statements out of files.
type texts struct{ names *strings.Replacer }

// write makes a statement whose settings are in its text where the session does
// not have them.
func (t texts) write(file, opt string) pgdb.Statement {
	return pgdb.Statement{Name: name(file), SQL: t.text(file, opt, ""), Direct: t.text(file, "", "")}
}

// read makes a statement that waits for nobody and whose commit nobody relies on.
func (t texts) read(file, where string) pgdb.Statement {
	return pgdb.Statement{Name: name(file), SQL: t.text(file, "", where)}
}

func name(file string) string { return strings.ReplaceAll(file, "_", " ") }

func (t texts) text(file, opt, where string) string {
	raw, err := files.ReadFile("sql/" + file + ".sql")
	if err != nil {
		panic(fmt.Sprintf("lease: %v", err)) // a name in this file is wrong
	}
	var b strings.Builder
	for line := range strings.Lines(string(raw)) {
		line, _, _ = strings.Cut(line, "--")
		if line = strings.TrimRight(line, " \n"); line != "" {
			b.WriteString(line + "\n")
		}
	}
	// The table's name comes last: it may contain anything.
	text := micros(strings.TrimSuffix(b.String(), "\n"))
	if opt == "" {
		text = strings.NewReplacer("{{opt}}", "", "{{with_opt}}", "", "{{from_opt}}", "", "{{comma_opt}}", "",
			"{{using_opt}}", "", "{{only_opt}}", "", "{{where}}", where).Replace(text)
	} else {
		text = strings.NewReplacer("{{opt}}", opt, "{{with_opt}}", "WITH "+strings.TrimSuffix(opt, ", ")+"\n", "{{from_opt}}", ", opt", "{{comma_opt}}", ", opt",
			"{{using_opt}}", " USING opt", "{{only_opt}}", "FROM opt", "{{where}}", where).Replace(text)
	}
	return t.names.Replace(text)
}

var (
	beats = regexp.MustCompile(`\{\{beat:(\w+)\}\}`)
	times = regexp.MustCompile(`\{\{micros:(.*?)\}\}`)
)

// micros expands {{micros:X}} to the microseconds in a time, since 1970, or in an
// interval; whole numbers are what every driver passes on unchanged. {{beat:t}} is
// what names this heartbeat of the row t, see engine.Rival.
func micros(text string) string {
	text = beats.ReplaceAllString(text, "{{micros:$1.last_heartbeat}}::text || '/' || $1.instance_id")
	return times.ReplaceAllString(text, "(pg_catalog.date_part('epoch', $1) * 1000000)::bigint")
}
