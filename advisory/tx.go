package advisory

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/engine"
)

// NameOptions say how a name is locked without a client. Nil means the defaults.
type NameOptions struct {
	// Namespace stands before the name, as pgmutex.Options.Namespace does.
	Namespace string

	// Shared takes a read lock.
	Shared bool

	// DirectSession vouches for the connection that AcquireConn is given, as
	// Options.DirectSession does. A transaction needs no voucher.
	DirectSession bool
}

// TryTx takes the lock of a name for the length of the caller's transaction, if it
// is free, and never waits. It excludes the clients of this engine and is excluded
// by them. There is no hold and nothing to release: the lock ends with the
// transaction, by commit or rollback, and a rollback to an earlier savepoint ends
// it as well. So it works behind every pooler, and what the transaction writes
// is exclusive with no assumption about clocks.
//
// Info tells name, id and time, by the server's clock. When somebody else holds
// the lock, the error is a *pgmutex.AcquireError that matches pgmutex.ErrHeld, and
// the transaction can go on. Any other error is the server's or the driver's, in a
// *pgmutex.AcquireError as well. A second call for the same name in one transaction is granted.
func TryTx(ctx context.Context, tx pgx.Tx, name string, opts *NameOptions) (pgmutex.Info, error) {
	return inTransaction(name, opts, func(st *statement, id int64, at **int64) error {
		return tx.QueryRow(ctx, st.text, id).Scan(at)
	})
}

// TrySQLTx is TryTx for a transaction of database/sql, with any driver.
func TrySQLTx(ctx context.Context, tx *sql.Tx, name string, opts *NameOptions) (pgmutex.Info, error) {
	return inTransaction(name, opts, func(st *statement, id int64, at **int64) error {
		return tx.QueryRowContext(ctx, inline(st.text, []any{id})).Scan(at)
	})
}

func inTransaction(name string, opts *NameOptions, query func(*statement, int64, **int64) error) (pgmutex.Info, error) {
	l, err := opts.lock(name)
	if err != nil {
		return pgmutex.Info{}, err
	}
	var at *int64
	if err := query(tryTx.of(l.shared), l.id, &at); err != nil {
		return pgmutex.Info{}, l.failed(err)
	}
	if at == nil {
		return pgmutex.Info{}, l.held("held")
	}
	return l.info(*at), nil
}

// A lock is one name as it is locked without a client.
type lock struct {
	name   string // as the caller gave it
	full   string
	id     int64
	shared bool
}

// lock checks a name as a client does.
func (o *NameOptions) lock(name string) (lock, error) {
	if o == nil {
		o = &NameOptions{}
	}
	l := lock{name: name, full: name, shared: o.Shared}
	if o.Namespace != "" {
		if strings.Contains(o.Namespace, "/") {
			return l, errors.New(`pgmutex: NameOptions.Namespace must not contain "/"`)
		}
		l.full = o.Namespace + "/" + name
	}
	switch {
	case name == "":
		return l, l.failed(errors.New("the name must not be empty"))
	case !utf8.ValidString(l.full) || strings.ContainsFunc(l.full, unicode.IsControl):
		return l, l.failed(errors.New("name and namespace must be valid UTF-8 without control characters"))
	case len(l.full) > nameLimit:
		return l, l.failed(fmt.Errorf("the name has %d bytes, the advisory engine takes at most %d", len(l.full), nameLimit))
	}
	l.id = engine.NameID(l.full)
	return l, nil
}

func (l lock) info(micros int64) pgmutex.Info {
	return pgmutex.Info{Name: l.name, ID: l.id, AcquiredAt: time.UnixMicro(micros).UTC(), Engine: "advisory", Shared: l.shared}
}

func (l lock) held(reason string) error {
	return &pgmutex.AcquireError{Name: l.name, Reason: reason, Err: &pgmutex.HeldError{Name: l.name}}
}

func (l lock) failed(err error) error {
	return &pgmutex.AcquireError{Name: l.name, Reason: err.Error(), Err: err}
}
