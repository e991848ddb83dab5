package lease

import (
	"context"
	"errors"
	"time"

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

// Verify returns nil if the tables can be used by the role of source. It changes
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
