package pgdb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// stateError is how other drivers tell the SQLSTATE.
type stateError string

func (e stateError) Error() string    { return "state " + string(e) }
func (e stateError) SQLState() string { return string(e) }

func TestClassify(t *testing.T) {
	server := func(severity, code string) error {
		return fmt.Errorf("wrapped: %w", &pgconn.PgError{Severity: "ОШИБКА", SeverityUnlocalized: severity, Code: code})
	}
	for _, c := range []struct {
		err  error
		want Class
	}{
		{nil, OK},
		{server("ERROR", "22012"), Definite},
		{server("ERROR", "XX000"), Definite},
		{server("ERROR", "25006"), ReadOnly},
		{server("ERROR", "42501"), Denied},
		{server("ERROR", "55P03"), RowLocked},
		{server("ERROR", "40001"), Retry},
		{server("ERROR", "40P01"), Retry},
		{server("ERROR", "23505"), Duplicate},
		{server("ERROR", "42P07"), Duplicate},
		{server("ERROR", "42P06"), Duplicate},
		{server("ERROR", "42P01"), Undefined},
		{server("ERROR", "3F000"), Undefined},
		{server("ERROR", "42703"), Undefined},
		{server("ERROR", "57014"), Canceled},
		{server("ERROR", "53200"), Full},
		{server("ERROR", "40003"), Unknown},
		{server("ERROR", "08006"), Unknown},
		{server("ERROR", "57P01"), Unknown},
		{server("ERROR", ""), Unknown},
		{server("FATAL", "42501"), Unknown},
		{server("PANIC", "53100"), Unknown},
		{server("FATAL", "57P01"), Unknown},
		{stateError("55P03"), RowLocked},
		{stateError("08006"), Unknown},
		{stateError(""), Unknown},
		{io.ErrUnexpectedEOF, Unknown},
		{context.Canceled, Unknown},
		{errors.New("nobody thought of this"), Unknown},
		{notSent("x", context.Canceled), NotSent},
		{fmt.Errorf("wrapped: %w", notSent("x", io.EOF)), NotSent},
	} {
		if got := Classify(c.err); got != c.want {
			t.Errorf("Classify(%v) = %v, want %v", c.err, got, c.want)
		}
		if sent, want := Sent(c.err), c.want == Unknown || c.want == OK; sent != want {
			t.Errorf("Sent(%v) = %v, want %v", c.err, sent, want)
		}
	}
}

// A server before 9.6 and some poolers send no untranslated severity.
func TestClassifyOldSeverity(t *testing.T) {
	wantClass(t, &pgconn.PgError{Severity: "FATAL", Code: "53300"}, Unknown)
	wantClass(t, &pgconn.PgError{Severity: "ERROR", Code: "55P03"}, RowLocked)
}

func TestErrorIs(t *testing.T) {
	err := wrap("looking", &pgconn.PgError{Severity: "ERROR", Code: "42501", Message: "permission denied for table t"})
	wantIs(t, err, fs.ErrPermission)
	wantText(t, err.Error(), "looking: ", "permission denied for table t", "42501")
	if errors.Is(wrap("looking", &pgconn.PgError{Severity: "ERROR", Code: "42P01"}), fs.ErrPermission) {
		t.Error("a missing table matches fs.ErrPermission")
	}
	if wrap("looking", nil) != nil {
		t.Error("wrap(nil) is not nil")
	}
	if got := SQLState(fmt.Errorf("wrapped: %w", err)); got != "42501" {
		t.Errorf("SQLState = %q", got)
	}
}

func TestClassNames(t *testing.T) {
	seen := map[string]Class{}
	for c := Unknown; c <= Full; c++ {
		if other, ok := seen[c.String()]; ok {
			t.Errorf("classes %d and %d are both called %q", other, c, c)
		}
		seen[c.String()] = c
	}
}
