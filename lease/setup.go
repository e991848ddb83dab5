package lease

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmutex/pgmutex/internal/pgdb"
	"github.com/pgmutex/pgmutex/internal/schema"
)

// closeBound limits closing what was opened for one call.
const closeBound = 5 * time.Second

// Migrate makes the tables that the options name, or brings them to the version
// of this library. It may be called at every start: when nothing is missing it
// changes nothing and needs no right to create anything. Many processes may call
// it at once, and locks that are held stay held, those of the Python package
// included, whose table it extends in place.
//
// It returns nil when the tables are as they must be; a failure leaves them as
// they were. A missing right matches fs.ErrPermission, and the error names the
// command that helps and as whom to run it.
func Migrate[S pgdb.Source](ctx context.Context, source S, opts *Options) error {
	return withDB(ctx, source, opts, schema.Migrate)
}

// Verify returns nil if the role of source can take locks in the tables. It changes
// nothing. Its error names everything that is missing, a table, an index or a
// GRANT, and what to do about it; missing rights match fs.ErrPermission.
func Verify[S pgdb.Source](ctx context.Context, source S, opts *Options) error {
	return withDB(ctx, source, opts, schema.Verify)
}

// SQL returns what Migrate does as a script for psql, and with a role also the
// GRANTs that this role needs to take locks. The script can be run again.
func SQL(opts *Options, role string) (string, error) {
	set, err := opts.settings()
	if err != nil {
		return "", err
	}
	return schema.SQL(set.names, role)
}

// Grants returns the GRANTs for a role as a script for psql, by what the role is
// for: "client" takes locks, "guard" guards transactions by holds that another
// role takes, "viewer" looks, and "operator" looks and ends others' holds. A
// client of this package opened as a viewer or an operator looks and, as an
// operator, forces; all else it refuses, matching fs.ErrPermission. What a role
// can do to others with its rights is told in docs/security.md.
func Grants(opts *Options, role, purpose string) (string, error) {
	set, err := opts.settings()
	if err != nil {
		return "", err
	}
	return schema.Grants(set.names, role, purpose)
}

// ConnConfig returns the configuration that a connection string stands for when
// it is given to New or Open, for a connection of the caller's own to the same
// server: with those of libpq's parameters and variables that pgx does not know
// honoured, dropped or refused. Its error quotes nothing of the string.
func ConnConfig(dsn string) (*pgx.ConnConfig, error) { return pgdb.ConnConfig(dsn) }

func withDB[S pgdb.Source](ctx context.Context, source S, opts *Options,
	do func(context.Context, *pgdb.DB, schema.Names) error,
) (err error) {
	set, err := opts.settings()
	if err != nil {
		return err
	}
	db, err := pgdb.Open(source, pgdb.Options{})
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeBound)
		defer cancel()
		err = errors.Join(err, db.Close(closing))
	}()
	return do(ctx, db, set.names)
}
