package schema

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

var (
	//go:embed sql/grant.sql
	grantClient string
	//go:embed sql/grant_guard.sql
	grantGuard string
	//go:embed sql/grant_viewer.sql
	grantViewer string
	//go:embed sql/grant_operator.sql
	grantOperator string
)

// grants are the scripts by what a role is for.
var grants = map[string]string{
	"client": grantClient, "guard": grantGuard, "viewer": grantViewer, "operator": grantOperator,
}

// SQL returns the whole set-up as a script for psql: what [Migrate] does, and,
// if role is not empty, the rights that this role needs at run time. The script
// may be run again, whoever made the tables.
func SQL(n Names, role string) (string, error) {
	list := []string{"SELECT pg_catalog.pg_advisory_xact_lock(" + strconv.FormatInt(n.key(), 10) + ")"}
	if n.Schema != "public" {
		list = append(list, createSchema(n))
	}
	list = append(list, n.create()...)
	if role != "" {
		granted, err := n.grant(grantClient, role)
		if err != nil {
			return "", err
		}
		list = append(list, granted...)
	}
	return n.print(list), nil
}

// Grants returns a script for psql that gives a role the rights for a purpose:
// client, guard, viewer or operator.
func Grants(n Names, role, purpose string) (string, error) {
	text, ok := grants[purpose]
	if !ok {
		return "", fmt.Errorf("rights %q: want client, guard, viewer or operator", purpose)
	}
	if role == "" {
		return "", errors.New("role: is empty")
	}
	list, err := n.grant(text, role)
	if err != nil {
		return "", err
	}
	return n.print(list), nil
}

func (n Names) grant(text, role string) ([]string, error) {
	if strings.ContainsRune(role, 0) || !utf8.ValidString(role) || len(role) > identifierBytes {
		return nil, errors.New("role: not a possible name")
	}
	return n.script(text,
		"{{schema}}", pgx.Identifier{n.Schema}.Sanitize(),
		"{{role}}", pgx.Identifier{role}.Sanitize()), nil
}

// print makes one transaction of the statements.
func (n Names) print(list []string) string {
	list = slices.Concat([]string{"BEGIN", "SET LOCAL lock_timeout = '5s'"}, list, []string{"COMMIT"})
	return fmt.Sprintf("-- pgmutex: lock table %s, schema version %d\n\n%s;\n",
		strings.Map(oneLine, n.String()), Version, strings.Join(list, ";\n\n"))
}

// oneLine keeps a name from ending the comment that it stands in.
func oneLine(r rune) rune {
	if r < ' ' || r == 0x7f {
		return '?'
	}
	return r
}
