package schema

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pgmutex/pgmutex/internal/pgdb"
)

//go:embed sql/facts.sql
var factsSQL string

// facts is what the catalogs say about the tables, and the meta row.
type facts struct {
	values  map[string]map[string]string // kind, name, value
	uniques []string                     // column lists of the lock table's unique indexes, sorted within
	indexed []string                     // of all its indexes

	haveVersion     bool
	version, oldest int
}

// look reads the facts. It fails only where the server cannot be asked.
func look(ctx context.Context, q pgdb.Querier, n Names) (*facts, error) {
	f := &facts{values: map[string]map[string]string{}}
	err := q.Query(ctx, stripComments(factsSQL), []any{n.Schema, n.Table}, func(row pgdb.Row) error {
		var kind, name, value string
		if err := row.Scan(&kind, &name, &value); err != nil {
			return err
		}
		switch kind {
		case "unique":
			f.uniques = append(f.uniques, sorted(name))
			f.indexed = append(f.indexed, name)
		case "index":
			f.indexed = append(f.indexed, name)
		default:
			if f.values[kind] == nil {
				f.values[kind] = map[string]string{}
			}
			f.values[kind][name] = value
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look at the lock table: %w", err)
	}
	if f.values["relation"][suffixMeta] != "r" || !f.may(suffixMeta, "SELECT") || f.values["usage"][""] != "true" {
		return f, nil
	}
	for _, c := range []string{"version", "oldest"} {
		if _, ok := f.values["column"][suffixMeta+"."+c]; !ok {
			return f, nil
		}
	}
	err = q.Query(ctx, "SELECT version, oldest FROM "+n.Meta, nil, func(row pgdb.Row) error {
		f.haveVersion = true
		return row.Scan(&f.version, &f.oldest)
	})
	if err != nil {
		return nil, fmt.Errorf("look at the version of the lock table: %w", err)
	}
	return f, nil
}

func sorted(list string) string {
	parts := strings.Split(list, ",")
	sort.Strings(parts)
	return strings.Join(parts, ",")
}

func (f *facts) has(suffix string) bool { return f.values["relation"][suffix] != "" }

func (f *facts) may(suffix, privilege string) bool {
	return f.values["right"][suffix+":"+privilege] == "true"
}

// tooNew reports tables that this library is too old for.
func (f *facts) tooNew(n Names) *Problem {
	if !f.haveVersion || f.oldest <= Version {
		return nil
	}
	return &Problem{
		Table:   n.String(),
		Missing: []string{fmt.Sprintf("its schema has version %d, and this program knows version %d", f.version, Version)},
		Fix:     "use a newer version of pgmutex",
	}
}

// foreign reports a relation of the table's name that is something else, which
// no migration can repair.
func (f *facts) foreign(n Names) *Problem {
	p := &Problem{Table: n.String(), Fix: "rename it, or name another table for the locks"}
	for _, s := range suffixes {
		kind, want := f.values["relation"][s], "r"
		if s == suffixToken {
			want = "S"
		}
		if kind != "" && kind != want {
			p.Missing = append(p.Missing, n.Table+s+" is there but is something else")
		}
	}
	if f.has("") && p.Missing == nil {
		for _, c := range columns[""][:foreignColumns] {
			if got := f.values["column"]["."+c.name]; got != c.kind {
				p.Missing = append(p.Missing, fmt.Sprintf("column %s is %s instead of %s", c.name, orNone(got), c.kind))
			}
		}
	}
	if p.Missing == nil {
		return nil
	}
	return p
}

func orNone(s string) string {
	if s == "" {
		return "missing"
	}
	return s
}

// lacking lists what [Migrate] would add or put right.
func (f *facts) lacking(n Names) []string {
	if _, ok := f.values["schema"][""]; !ok {
		return []string{"schema " + plain(n.Schema) + " does not exist"}
	}
	var missing []string
	for _, s := range suffixes {
		if !f.has(s) {
			missing = append(missing, n.Table+s+" does not exist")
			continue
		}
		for _, c := range columns[s] {
			if got := f.values["column"][s+"."+c.name]; got != c.kind {
				missing = append(missing, fmt.Sprintf("column %s of %s is %s instead of %s", c.name, n.Table+s, orNone(got), c.kind))
			}
		}
	}
	if f.has("") {
		if !slices.Contains(f.uniques, "lock_name,locked") {
			missing = append(missing, "there is no unique index on (locked, lock_name)")
		}
		if !slices.Contains(f.uniques, "instance_id,lock_name") {
			missing = append(missing, "there is no unique index on (lock_name, instance_id)")
		}
		if fill, err := strconv.Atoi(f.values["option"]["fillfactor"]); err != nil || fill > 90 {
			missing = append(missing, "its fillfactor leaves no room for heartbeats on the page of their row")
		}
	}
	if f.has(suffixMeta) && f.may(suffixMeta, "SELECT") && f.values["usage"][""] == "true" {
		switch {
		case !f.haveVersion:
			missing = append(missing, n.Table+suffixMeta+" has no row")
		case f.version < required:
			missing = append(missing, fmt.Sprintf("its schema has version %d, this program needs %d", f.version, required))
		}
	}
	return missing
}

// heartbeatIndexed reports an index that no migration removes: somebody made it.
func (f *facts) heartbeatIndexed(n Names) *Problem {
	for _, list := range f.indexed {
		if slices.Contains(strings.Split(list, ","), "last_heartbeat") {
			return &Problem{
				Table:   n.String(),
				Missing: []string{"an index covers last_heartbeat, so that every heartbeat writes a new entry into all indexes"},
				Fix:     "drop that index",
			}
		}
	}
	return nil
}

// forbidden lists the rights that the current role lacks, as the GRANTs that
// give them.
func (f *facts) forbidden(n Names) []string {
	me := pgx.Identifier{f.values["me"][""]}.Sanitize()
	var grants []string
	if f.values["usage"][""] != "true" {
		grants = append(grants, "GRANT USAGE ON SCHEMA "+pgx.Identifier{n.Schema}.Sanitize()+" TO "+me)
	}
	for _, s := range suffixes {
		var lacks []string
		for _, privilege := range []string{"USAGE", "SELECT", "INSERT", "UPDATE", "DELETE"} {
			if f.values["right"][s+":"+privilege] == "false" {
				lacks = append(lacks, privilege)
			}
		}
		if lacks != nil {
			object := n.qualified(s)
			if s == suffixToken {
				object = "SEQUENCE " + object
			}
			grants = append(grants, "GRANT "+strings.Join(lacks, ", ")+" ON "+object+" TO "+me)
		}
	}
	return grants
}

// maker says as whom the tables have to be made or upgraded.
func (f *facts) maker(n Names) string {
	if owner := f.values["owner"][""]; owner != "" {
		return "as " + owner + ", who owns the table"
	}
	if _, ok := f.values["schema"][""]; !ok {
		return "as a role that may create schemas in this database"
	}
	return "as a role that may create tables in schema " + plain(n.Schema)
}

// stripComments removes lines that are comments.
func stripComments(sql string) string {
	var b strings.Builder
	for line := range strings.Lines(sql) {
		if !strings.HasPrefix(strings.TrimSpace(line), "--") {
			b.WriteString(line)
		}
	}
	return strings.TrimSpace(b.String())
}
