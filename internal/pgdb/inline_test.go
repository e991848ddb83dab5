package pgdb

import (
	"strings"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// The server reads from the text what was passed, whatever surrounds it.
func TestInline(t *testing.T) {
	nasty := []string{
		"", "plain", "it's", `back\slash`, `\'; DROP TABLE t; --`, "$1", `"$2"`, "/* $1", "new\nline", "ünïcødé", "'", `\`, "''", `E'\''`,
	}
	for _, escapes := range []string{"on", "off"} {
		db := open(t, pgtest.With(fresh(t), "standard_conforming_strings", escapes, "escape_string_warning", "off"), Options{})
		for _, s := range nasty {
			text, err := inline(`SELECT $1::text || '$1' || E'\'$1' || $2 || /* $1 */ 'it''s $2' AS "a $1"  -- $2`, []any{s, "end"})
			pgtest.Must(t, err)
			if got, want := one[string](t, db, Work, text), s+"$1'$1endit's $2"; got != want {
				t.Errorf("%q became %q (%s)", s, got, text)
			}
		}
		text, err := inline(`SELECT ($1::text[])[2] || ($2::bigint[])[1] || extract(epoch FROM $3::interval)::int
			|| ($4::timestamptz = '2026-11-30 12:00:00.5+00') || coalesce($5, 'null') || $6::bool || ($7::float8 + $8::int8)`,
			[]any{[]string{"a", `b,"\ {}'`}, []int64{-7}, 90 * time.Second, time.Date(2026, 11, 30, 12, 0, 0, 5e8, time.UTC), nil, true, 0.5, int64(-3)})
		pgtest.Must(t, err)
		if got := one[string](t, db, Work, text); got != `b,"\ {}'-790truenulltrue-2.5` {
			t.Errorf("got %q", got)
		}
	}
}

func TestInlineRefusals(t *testing.T) {
	for text, args := range map[string][]any{
		"SELECT $1": nil, "SELECT $2": {"a"}, "SELECT $0": {"a"}, "SELECT $": {"a"}, "SELECT 1": {"a"},
		"SELECT $1::text": {"nul\x00"}, "SELECT $1::int": {struct{}{}},
	} {
		if got, err := inline(text, args); err == nil {
			t.Errorf("%s with %q became %q", text, args, got)
		}
	}
	if got, err := inline(`SELECT "$1", '$1', E'\\', a$1 -- $1`, nil); err != nil || !strings.HasPrefix(got, `SELECT "$1"`) {
		t.Errorf("%q, %v", got, err)
	}
}
