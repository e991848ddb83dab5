package schema

import (
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

//go:embed sql/grant.sql
var grantSQL string

// SQL returns the whole set-up as a script for psql: what [Migrate] does, and,
// if role is not empty, the rights that this role needs at run time. The script
// may be run again, whoever made the tables.
func SQL(n Names, role string) (string, error) {
	if strings.ContainsRune(role, 0) || !utf8.ValidString(role) || len(role) > identifierBytes {
		return "", errors.New("role: not a possible name")
	}
	list := []string{
		"BEGIN",
		fmt.Sprintf("SET LOCAL lock_timeout = '%ds'", 5),
		"SELECT pg_catalog.pg_advisory_xact_lock(" + strconv.FormatInt(n.key(), 10) + ")",
	}
	if n.Schema != "public" {
		list = append(list, createSchema(n))
	}
	list = append(list, n.create()...)
	if role != "" {
		list = append(list, n.script(grantSQL,
			"{{schema}}", pgx.Identifier{n.Schema}.Sanitize(),
			"{{role}}", pgx.Identifier{role}.Sanitize())...)
	}
	list = append(list, "COMMIT")
	return fmt.Sprintf("-- pgmutex: lock table %s, schema version %d\n\n%s;\n",
		strings.Map(oneLine, n.String()), Version, strings.Join(list, ";\n\n")), nil
}

// oneLine keeps a name from ending the comment that it stands in.
func oneLine(r rune) rune {
	if r < ' ' || r == 0x7f {
		return '?'
	}
	return r
}
