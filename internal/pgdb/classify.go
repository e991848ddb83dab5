package pgdb

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Class says what an error means for the statement that it ended.
type Class uint8

const (
	// Unknown means that the statement may have been executed, may still be
	// executed later, or was not. It is the zero value, so that an error that
	// nobody thought of is never taken for a definite answer.
	Unknown Class = iota

	// OK is the class of a nil error.
	OK

	// NotSent means that the statement never left this process: no connection
	// could be made, or the context ended first.
	NotSent

	// All of the following are errors of the server with severity ERROR: the
	// statement was refused as a whole and nothing of it happened.

	Definite  // with no class of its own
	ReadOnly  // 25006: a standby, or default_transaction_read_only
	Denied    // 42501: a right is missing; the error matches fs.ErrPermission
	RowLocked // 55P03: lock_timeout, or NOWAIT
	Retry     // 40001, 40P01: worth repeating as it is
	Duplicate // 23505, 42P06, 42P07: it is there already
	Undefined // 42P01, 3F000, 42703, 42883, 42704: a table, schema, column, function or other object is missing
	Canceled  // 57014: statement_timeout, or pg_cancel_backend
	Full      // 53xxx: the server is short of memory, disk or locks
)

// String names the class in messages and logs.
func (c Class) String() string {
	names := [...]string{"unknown", "ok", "not sent", "definite", "read-only", "denied", "row locked",
		"retry", "duplicate", "undefined", "canceled", "full"}
	if int(c) < len(names) {
		return names[c]
	}
	return "unknown"
}

// Executed reports whether the statement may have taken effect: everything but
// a clear no.
func (c Class) Executed() bool { return c == Unknown || c == OK }

// Sent reports whether a statement that ended with err may have been executed.
// It is false where it certainly was not, whether it never left this process or
// was refused.
func Sent(err error) bool { return Classify(err).Executed() }

// Classify says what err means for the statement that it ended. It understands
// the errors of this package, and errors of any driver that have a method
// SQLState() string; what it does not understand is Unknown.
func Classify(err error) Class {
	if err == nil {
		return OK
	}
	var own *Error
	if errors.As(err, &own) {
		return own.Class
	}
	return classify(err)
}

// classify judges an error as it came from a driver.
func classify(err error) Class {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		switch severity(pg) {
		case "FATAL", "PANIC":
			// The backend is gone. Whether it went before, during or after the
			// commit of the statement cannot be told from the message.
			return Unknown
		}
		return classifyState(pg.Code)
	}
	if code := SQLState(err); code != "" {
		return classifyState(code)
	}
	if pgconn.SafeToRetry(err) {
		return NotSent
	}
	return Unknown
}

// severity returns the untranslated severity. Servers before 9.6 and some
// poolers send only the other one.
func severity(e *pgconn.PgError) string {
	if e.SeverityUnlocalized != "" {
		return e.SeverityUnlocalized
	}
	return e.Severity
}

// classifyState judges an SQLSTATE that came with severity ERROR, or with one
// that is not known.
func classifyState(code string) Class {
	switch code {
	case "25006":
		return ReadOnly
	case "42501":
		return Denied
	case "55P03":
		return RowLocked
	case "40001", "40P01":
		return Retry
	case "23505", "42P06", "42P07":
		return Duplicate
	case "42P01", "3F000", "42703", "42883", "42704":
		return Undefined
	case "57014":
		return Canceled
	case "40003":
		return Unknown
	}
	switch {
	case len(code) != 5, strings.HasPrefix(code, "08"), strings.HasPrefix(code, "57P"):
		return Unknown
	case strings.HasPrefix(code, "53"):
		return Full
	}
	return Definite
}

// SQLState returns the SQLSTATE of err as any driver tells it, or "".
func SQLState(err error) string {
	var own *Error
	if errors.As(err, &own) {
		return own.Code
	}
	var coded interface{ SQLState() string }
	if errors.As(err, &coded) {
		return coded.SQLState()
	}
	return ""
}

// An Error is the failure of one statement, or of the connection that it needed.
// Its text never contains any part of a password.
type Error struct {
	Class Class
	Code  string // SQLSTATE, empty where the server said nothing

	what string // the statement's name, or what else was tried
	text string // replaces the text of err where that may quote the connection string
	err  error
}

func (e *Error) Error() string {
	text := e.text
	if text == "" && e.err != nil {
		text = e.err.Error()
	}
	if e.Class == NotSent && e.text == "" {
		text = "not sent: " + text
	}
	if e.what == "" {
		return text
	}
	return e.what + ": " + text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.err }

// Is makes a missing right match fs.ErrPermission.
func (e *Error) Is(target error) bool { return target == fs.ErrPermission && e.Code == "42501" }

// SQLState returns e.Code.
func (e *Error) SQLState() string { return e.Code }

// wrap makes an Error of what a driver returned for a statement that may have
// been handed over.
func wrap(what string, err error) error {
	var own *Error
	if err == nil || errors.As(err, &own) {
		return err
	}
	return &Error{Class: classify(err), Code: SQLState(err), what: what, err: err}
}

// notSent makes an Error of a failure before the statement was handed over.
func notSent(what string, err error) error {
	return &Error{Class: NotSent, Code: SQLState(err), what: what, err: err}
}

// contextError returns why ctx ended, with its cause where one was given.
func contextError(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, ctx.Err()) {
		return errors.Join(ctx.Err(), cause)
	}
	return ctx.Err()
}
