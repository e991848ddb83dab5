package schema

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

// DefaultTable is the lock table where none is named.
const DefaultTable = "public.mutex_lock"

// Suffixes of the names that are derived from the table's.
const (
	suffixToken     = "_token"
	suffixMeta      = "_meta"
	suffixWaiter    = "_waiter"
	suffixEvent     = "_event"
	suffixUnique    = "_uq"
	suffixCheck     = "_chk_locked"
	suffixTerm      = "_term"
	suffixWaiterKey = "_waiter_pkey"
	suffixEventKey  = "_event_pkey"
	suffixHistory   = "_event_name"
)

const (
	identifierBytes = 63 // what PostgreSQL keeps of a name
	longestSuffix   = len(suffixWaiterKey)
)

// Names are the names of the tables, in the two forms that are needed. The zero
// value is not usable: see [Parse].
type Names struct {
	Schema, Table string // plain

	// Quoted and qualified, to be put into a statement.
	Lock, Token, Meta, Waiter, Event string
}

// Parse reads "[schema.]table"; the empty string is [DefaultTable] and a table
// without a schema is in public, whatever the search_path says. Letters keep
// their case. A part that contains a dot is written in double quotes, as in SQL.
func Parse(name string) (Names, error) {
	if name == "" {
		name = DefaultTable
	}
	parts, err := split(name)
	if err != nil {
		return Names{}, fmt.Errorf("table %q: %w", name, err)
	}
	if len(parts) == 1 {
		parts = []string{"public", parts[0]}
	}
	if len(parts) != 2 {
		return Names{}, fmt.Errorf("table %q: want [SCHEMA.]TABLE", name)
	}
	if err := check(parts[0], identifierBytes); err != nil {
		return Names{}, fmt.Errorf("table %q: its schema %w", name, err)
	}
	if err := check(parts[1], identifierBytes-longestSuffix); err != nil {
		return Names{}, fmt.Errorf("table %q: its name %w", name, err)
	}
	n := Names{Schema: parts[0], Table: parts[1]}
	n.Lock = n.qualified("")
	n.Token = n.qualified(suffixToken)
	n.Meta = n.qualified(suffixMeta)
	n.Waiter = n.qualified(suffixWaiter)
	n.Event = n.qualified(suffixEvent)
	return n, nil
}

// String is the table's name as [Parse] reads it and as messages show it.
func (n Names) String() string { return plain(n.Schema) + "." + plain(n.Table) }

func plain(part string) string {
	if strings.ContainsAny(part, `."`) {
		return pgx.Identifier{part}.Sanitize()
	}
	return part
}

func (n Names) qualified(suffix string) string {
	return pgx.Identifier{n.Schema, n.Table + suffix}.Sanitize()
}

// own quotes a derived name without its schema, as CREATE INDEX and CONSTRAINT
// want it.
func (n Names) own(suffix string) string { return pgx.Identifier{n.Table + suffix}.Sanitize() }

// constraint names the unique or the check constraint: for the reference's own
// table as its documentation does, for others after the table, since the name of
// a unique constraint is that of an index and must be the only one in its schema.
func (n Names) constraint(suffix string) string {
	if n.Table != "mutex_lock" {
		return n.own(suffix)
	}
	if suffix == suffixUnique {
		return `"uq_mutex_lock"`
	}
	return `"chk_locked"`
}

// Replacer puts the quoted names into a statement in the place of {{lock}},
// {{token}}, {{meta}}, {{waiter}} and {{event}}; {{token:literal}} is the
// sequence as a string constant, which is how functions take it.
func (n Names) Replacer(more ...string) *strings.Replacer {
	return strings.NewReplacer(append([]string{
		"{{lock}}", n.Lock,
		"{{token}}", n.Token,
		"{{token:literal}}", Literal(n.Token),
		"{{meta}}", n.Meta,
		"{{waiter}}", n.Waiter,
		"{{event}}", n.Event,
	}, more...)...)
}

// Literal quotes a string constant. It is right whatever
// standard_conforming_strings says.
func Literal(s string) string {
	quoted := "'" + strings.ReplaceAll(s, "'", "''") + "'"
	if strings.Contains(s, `\`) {
		return "E" + strings.ReplaceAll(quoted, `\`, `\\`)
	}
	return quoted
}

// split cuts a name at the dots outside of double quotes.
func split(name string) ([]string, error) {
	var parts []string
	for rest := name; ; {
		if !strings.HasPrefix(rest, `"`) {
			part, after, more := strings.Cut(rest, ".")
			parts = append(parts, part)
			if !more {
				return parts, nil
			}
			rest = after
			continue
		}
		part, after, err := quoted(rest)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
		if after == "" {
			return parts, nil
		}
		if after[0] != '.' {
			return nil, errors.New("text after a closing quote")
		}
		rest = after[1:]
	}
}

// quoted reads an identifier in double quotes from the start of s.
func quoted(s string) (part, after string, err error) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		if s[i] != '"' {
			b.WriteByte(s[i])
			continue
		}
		if i+1 < len(s) && s[i+1] == '"' {
			b.WriteByte('"')
			i++
			continue
		}
		return b.String(), s[i+1:], nil
	}
	return "", "", errors.New("a quote is not closed")
}

func check(part string, limit int) error {
	switch {
	case part == "":
		return errors.New("is empty")
	case len(part) > limit:
		return fmt.Errorf("has %d bytes, at most %d are possible", len(part), limit)
	case strings.ContainsRune(part, 0):
		return errors.New("contains a zero byte")
	case !utf8.ValidString(part):
		return errors.New("is not valid UTF-8")
	}
	return nil
}
