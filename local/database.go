package local

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// A database is one connection to the file. It is used by one goroutine at a
// time. Its statements are never cancelled: they are short, and a cancelled one
// would leave in doubt what another moment makes certain.
type database struct {
	path string
	info fs.FileInfo // what path was when it was opened
	pool *sql.DB
	conn *sql.Conn
	prep map[string]*sql.Stmt
}

// connect opens the file, which has to exist. Called with opening held.
func connect(path string, info fs.FileInfo, synced bool) (*database, error) {
	synchronous := "NORMAL"
	if synced {
		synchronous = "FULL"
	}
	// Waiting for another process is ours: SQLite would not look at contexts.
	dsn := (&url.URL{
		Scheme: "file",
		Path:   path,
		RawQuery: "mode=rw&_pragma=busy_timeout(0)" +
			"&_pragma=synchronous(" + synchronous + ")",
	}).String()
	pool := sql.OpenDB(connector(dsn))
	conn, err := pool.Conn(background)
	if err != nil {
		_ = pool.Close()
		return nil, describe(path, err)
	}
	d := &database{path: path, info: info, pool: pool, conn: conn, prep: map[string]*sql.Stmt{}}
	// The last one to close would delete the log, and the next one to open make
	// it anew: two more writes to the disk for each command.
	err = conn.Raw(func(c any) error {
		_, err := c.(sqlite.FileControl).FileControlPersistWAL("main", 1)
		return err
	})
	if err != nil {
		d.close()
		return nil, describe(path, err)
	}
	return d, nil
}

// A connector opens connections by a driver of its own: functions and hooks that
// the program registers for SQLite are not meant for the store.
type connector string

func (dsn connector) Connect(context.Context) (driver.Conn, error) {
	return new(sqlite.Driver).Open(string(dsn))
}

func (dsn connector) Driver() driver.Driver { return new(sqlite.Driver) }

// background is the context of all statements.
var background = context.Background()

// close gives the connection up. What an open transaction had done is undone.
func (d *database) close() {
	for _, stmt := range d.prep {
		_ = stmt.Close()
	}
	_ = d.conn.Close()
	_ = d.pool.Close()
}

// moved tells whether the path no longer leads to the file that is open.
func (d *database) moved() bool {
	info, err := os.Stat(d.path)
	return err != nil || !os.SameFile(info, d.info)
}

// transact runs fn in a transaction that is opened by begin. When it returns an
// error that does not match errInDoubt, nothing has happened.
func (d *database) transact(begin string, fn func() error) error {
	if err := d.exec(begin); err != nil {
		return err
	}
	if err := fn(); err != nil {
		_ = d.exec("ROLLBACK")
		return err
	}
	if err := d.exec("COMMIT"); err != nil {
		_ = d.exec("ROLLBACK")
		return fmt.Errorf("%w: %w", errInDoubt, err)
	}
	return nil
}

// errInDoubt is matched by the error of a transaction that may have happened.
var errInDoubt = errors.New("local: the outcome is not known")

// exec runs statements that return nothing, which are not worth preparing or
// cannot be.
func (d *database) exec(query string) error {
	if _, err := d.conn.ExecContext(background, query); err != nil {
		return describe(d.path, err)
	}
	return nil
}

// run runs a prepared statement that returns nothing.
func (d *database) run(query string, args ...any) error {
	stmt, err := d.stmt(query) //nolint:sqlclosecheck // kept for the next time
	if err != nil {
		return err
	}
	if _, err := stmt.ExecContext(background, args...); err != nil {
		return describe(d.path, err)
	}
	return nil
}

// each runs a prepared query and calls fn for each row.
func (d *database) each(query string, args []any, fn func(scan func(...any) error) error) error {
	stmt, err := d.stmt(query) //nolint:sqlclosecheck // kept for the next time
	if err != nil {
		return err
	}
	rows, err := stmt.QueryContext(background, args...)
	if err != nil {
		return describe(d.path, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := fn(rows.Scan); err != nil {
			return err
		}
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return describe(d.path, err)
	}
	return nil
}

// row runs a prepared query for at most one row.
func (d *database) row(query string, args ...any) *answer {
	return &answer{d: d, query: query, args: args}
}

// An answer is a query that has yet to be run by scan or found.
type answer struct {
	d     *database
	query string
	args  []any
}

// scan fails if there is no row.
func (a *answer) scan(dest ...any) error {
	found, err := a.found(dest...)
	if err == nil && !found {
		err = fmt.Errorf("local: %s: no answer to %q", a.d.path, a.query)
	}
	return err
}

// found reports whether there was a row.
func (a *answer) found(dest ...any) (bool, error) {
	found := false
	err := a.d.each(a.query, a.args, func(scan func(...any) error) error {
		found = true
		return scan(dest...)
	})
	return found, err
}

func (d *database) stmt(query string) (*sql.Stmt, error) {
	if stmt := d.prep[query]; stmt != nil {
		return stmt, nil
	}
	stmt, err := d.conn.PrepareContext(background, query)
	if err != nil {
		return nil, describe(d.path, err)
	}
	d.prep[query] = stmt
	return stmt, nil
}

// code returns SQLite's primary result code, 0 where the error is not SQLite's.
func code(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

// busy tells whether another process was in the way, for a moment.
func busy(err error) bool {
	c := code(err)
	return c == sqlite3.SQLITE_BUSY || c == sqlite3.SQLITE_LOCKED
}

// broken tells whether the connection should be made anew.
func broken(err error) bool {
	switch code(err) {
	case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CANTOPEN,
		sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_MISUSE:
		return true
	}
	return errors.Is(err, errInDoubt)
}

// final tells whether trying again the same way is of no use.
func final(err error) bool {
	switch code(err) {
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return true
	}
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, errors.ErrUnsupported) || errors.Is(err, errClosed)
}

// describe adds the path to an error of SQLite's, and what it means.
func describe(path string, err error) error {
	switch code(err) {
	case 0:
		return err
	case sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("local: %s is not a lock file: %w", path, err)
	case sqlite3.SQLITE_CORRUPT:
		return fmt.Errorf("local: %s is damaged: end all programs that use it, then remove it: %w", path, err)
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM:
		return fmt.Errorf("local: %s cannot be written: %w: %w", path, fs.ErrPermission, err)
	case sqlite3.SQLITE_FULL:
		return fmt.Errorf("local: %s: the disk is full: %w", path, err)
	}
	return fmt.Errorf("local: %s: %w", path, err)
}
