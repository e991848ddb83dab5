package schema

import (
	"context"
	"errors"
	"strings"

	"github.com/pgmutex/pgmutex/internal/pgdb"
)

// Verify returns nil if the tables are there, have a version that this library
// can work with, and may be used by the role that db connects as. It changes
// nothing and needs no right on the tables to say what is missing; then it
// returns a [*Problem], which matches fs.ErrPermission where rights are missing.
// Any other error means that the server could not be asked.
func Verify(ctx context.Context, db *pgdb.DB, n Names) error {
	f, err := inspect(ctx, db, n)
	if err != nil {
		return err
	}
	return f.verdict(n, f.forbidden(n))
}

// Usable is Verify for who may only want to look: a role that may not insert into
// the lock table can take no lock whatever else it may, and is there for looking
// or for ending others' holds. It needs the rights to read.
func Usable(ctx context.Context, db *pgdb.DB, n Names) error {
	f, err := inspect(ctx, db, n)
	if err != nil {
		return err
	}
	if f.looksOnly() {
		return f.verdict(n, nil)
	}
	return f.verdict(n, f.forbidden(n))
}

func (f *facts) looksOnly() bool {
	reads := f.values["usage"][""] == "true"
	for _, suffix := range []string{"", suffixWaiter, suffixEvent, suffixMeta} {
		reads = reads && f.may(suffix, "SELECT")
	}
	return reads && !f.may("", "INSERT")
}

// inspect asks on one connection.
func inspect(ctx context.Context, db *pgdb.DB, n Names) (f *facts, err error) {
	err = db.Look(ctx, func(ctx context.Context, q pgdb.Querier) error {
		f, err = look(ctx, q, n)
		return err
	})
	return f, err
}

func (f *facts) verdict(n Names, grants []string) error {
	if p := f.tooNew(n); p != nil {
		return p
	}
	if p := f.foreign(n); p != nil {
		return p
	}
	if missing := f.lacking(n); missing != nil {
		return &Problem{Table: n.String(), Missing: missing, Fix: "run `" + initCommand(n) + "` " + f.maker(n)}
	}
	if grants != nil {
		return &Problem{
			Table:   n.String(),
			Missing: []string{"role " + f.values["me"][""] + " lacks rights"},
			Fix: "run `" + strings.Join(grants, "; ") + "` " + f.maker(n) +
				" (`pgmutex init --print --role ROLE` shows all of them)",
			rights: true,
		}
	}
	if p := f.heartbeatIndexed(n); p != nil {
		return p
	}
	return nil
}

// initCommand is the command that makes the tables.
func initCommand(n Names) string {
	if n.String() == DefaultTable {
		return "pgmutex init"
	}
	return "pgmutex init --table " + n.String()
}

// Missing is for a statement that failed because a table or a right is missing:
// it looks again and returns the [*Problem], or nil where nothing is found or the
// server cannot be asked.
func Missing(ctx context.Context, db *pgdb.DB, n Names) error {
	var p *Problem
	if errors.As(Verify(ctx, db, n), &p) {
		return p
	}
	return nil
}
