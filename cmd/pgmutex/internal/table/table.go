// Package table takes the name of a lock table apart.
package table

import (
	"strings"

	"github.com/jackc/pgx/v5"
)

// A Name is that of a lock table, unquoted.
type Name struct{ Schema, Table string }

// Parse reads "[SCHEMA.]NAME" as the lease engine does, which has accepted it
// already; a part may be in double quotes, and empty is the default.
func Parse(text string) Name {
	if text == "" {
		return Name{"public", "mutex_lock"}
	}
	var parts []string
	var b strings.Builder
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"' && quoted && i+1 < len(text) && text[i+1] == '"':
			b.WriteByte(c)
			i++
		case c == '"' && (quoted || b.Len() == 0):
			quoted = !quoted
		case c == '.' && !quoted:
			parts = append(parts, b.String())
			b.Reset()
		default:
			b.WriteByte(c)
		}
	}
	parts = append(parts, b.String())
	if len(parts) == 1 {
		return Name{"public", parts[0]}
	}
	return Name{parts[0], parts[1]}
}

// Relation quotes the name of a relation that belongs to the table, which has the
// table's name and a suffix.
func (n Name) Relation(suffix string) string {
	return pgx.Identifier{n.Schema, n.Table + suffix}.Sanitize()
}

// String is the name as messages show it.
func (n Name) String() string { return plain(n.Schema) + "." + plain(n.Table) }

func plain(part string) string {
	if strings.ContainsAny(part, `."`) {
		return pgx.Identifier{part}.Sanitize()
	}
	return part
}
