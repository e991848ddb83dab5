package schema

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// expect fails unless err is a problem that mentions all words.
func expect(t testing.TB, err error, rights bool, words ...string) {
	t.Helper()
	var p *Problem
	if !errors.As(err, &p) {
		t.Errorf("want a problem with %q, got %v", words, err)
		return
	}
	if errors.Is(err, fs.ErrPermission) != rights {
		t.Errorf("about rights: %v, want %v: %v", !rights, rights, err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q is not in: %v", w, err)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than one line: %v", err)
	}
}

func TestVerifyNamesWhatIsMissing(t *testing.T) {
	dsn := pgtest.Shared(t).Database(t)
	n := parse(t, "app.mutex_lock")
	db := open(t, dsn)
	expect(t, Verify(t.Context(), db, n), false, "schema app does not exist", "pgmutex init --table app.mutex_lock", "create schemas")
	pgtest.Exec(t, dsn, "CREATE SCHEMA app")
	expect(t, Verify(t.Context(), db, n), false, "mutex_lock does not exist", "may create tables in schema app")

	for _, step := range []struct {
		change string
		words  []string
		undo   string // empty: Migrate repairs it
	}{
		{"DROP TABLE app.mutex_lock_waiter", []string{"mutex_lock_waiter does not exist", "as postgres, who owns the table"}, ""},
		{"DROP TABLE app.mutex_lock_event", []string{"mutex_lock_event does not exist"}, ""},
		{"DROP TABLE app.mutex_lock_meta", []string{"mutex_lock_meta does not exist"}, ""},
		{"DELETE FROM app.mutex_lock_meta", []string{"mutex_lock_meta has no row"}, ""},
		{"DROP SEQUENCE app.mutex_lock_token", []string{"mutex_lock_token does not exist"}, ""},
		{"ALTER TABLE app.mutex_lock DROP COLUMN promised_by", []string{"column promised_by of mutex_lock is missing"}, ""},
		{"ALTER TABLE app.mutex_lock REPLICA IDENTITY DEFAULT; DROP INDEX app.mutex_lock_term", []string{"unique index on (lock_name, instance_id)"}, ""},
		{"ALTER TABLE app.mutex_lock DROP CONSTRAINT uq_mutex_lock", []string{"unique index on (locked, lock_name)"}, ""},
		{"ALTER TABLE app.mutex_lock SET (fillfactor = 100)", []string{"fillfactor"}, ""},
		{"CREATE INDEX hb ON app.mutex_lock (last_heartbeat)", []string{"last_heartbeat", "drop that index"}, "DROP INDEX app.hb"},
		{"UPDATE app.mutex_lock_meta SET version = 0", []string{"version 0"}, ""},
		{"UPDATE app.mutex_lock_meta SET version = 99, oldest = 99", []string{"version 99", "newer version"}, "UPDATE app.mutex_lock_meta SET version = 1, oldest = 1"},
		{"ALTER TABLE app.mutex_lock ALTER COLUMN locked TYPE bigint", []string{"column locked is bigint"}, "ALTER TABLE app.mutex_lock ALTER COLUMN locked TYPE int"},
		{"ALTER TABLE app.mutex_lock_waiter RENAME TO w; CREATE VIEW app.mutex_lock_waiter AS SELECT 1", []string{"mutex_lock_waiter is there but is something else"},
			"DROP VIEW app.mutex_lock_waiter; ALTER TABLE app.w RENAME TO mutex_lock_waiter"},
	} {
		pgtest.Must(t, Migrate(t.Context(), db, n))
		pgtest.Must(t, Verify(t.Context(), db, n))
		pgtest.Exec(t, dsn, step.change)
		expect(t, Verify(t.Context(), db, n), false, step.words...)
		if step.undo != "" {
			pgtest.Exec(t, dsn, step.undo)
		}
	}
	// A newer version that still admits this one.
	pgtest.Must(t, Migrate(t.Context(), db, n))
	pgtest.Exec(t, dsn, "UPDATE app.mutex_lock_meta SET version = 2")
	pgtest.Exec(t, dsn, "ALTER TABLE app.mutex_lock ADD COLUMN later text")
	pgtest.Must(t, Verify(t.Context(), db, n))
	pgtest.Must(t, Migrate(t.Context(), db, n))
	if v := pgtest.One[int32](t, dsn, "SELECT version FROM app.mutex_lock_meta"); v != 2 {
		t.Errorf("Migrate went back to version %d", v)
	}
}

func TestRightsAreNamed(t *testing.T) {
	server := pgtest.Shared(t)
	dsn := server.Database(t)
	database := pgtest.One[string](t, dsn, "SELECT current_database()::text")
	server.Role(t, "poor", "secret")
	limited := open(t, server.PasswordDSN(database, "poor", "secret"))
	n := parse(t, "app.mutex_lock")
	expect(t, Migrate(t.Context(), limited, n), true, "schema app does not exist", "poor", "pgmutex init")
	pgtest.Must(t, Migrate(t.Context(), open(t, dsn), n))
	expect(t, Verify(t.Context(), limited, n), true, `GRANT USAGE ON SCHEMA "app" TO "poor"`, `GRANT SELECT, INSERT, UPDATE, DELETE ON "app"."mutex_lock" TO "poor"`)

	script, err := SQL(n, "poor")
	pgtest.Must(t, err)
	pgtest.Exec(t, dsn, script)
	pgtest.Must(t, Verify(t.Context(), limited, n))
	for _, right := range []string{"UPDATE ON app.mutex_lock", "DELETE ON app.mutex_lock_event", "SELECT ON app.mutex_lock_meta", "USAGE ON SEQUENCE app.mutex_lock_token"} {
		pgtest.Exec(t, dsn, "REVOKE "+right+" FROM poor")
		privilege, object, _ := strings.Cut(right, " ON ")
		_, name, _ := strings.Cut(object, ".")
		expect(t, Verify(t.Context(), limited, n), true, "GRANT "+privilege, name, "as postgres")
		pgtest.Exec(t, dsn, "GRANT "+right+" TO poor")
	}
	// What has to be changed is said, and as whom.
	pgtest.Exec(t, dsn, "ALTER TABLE app.mutex_lock DROP COLUMN token")
	expect(t, Migrate(t.Context(), limited, n), true, "column token of mutex_lock is missing", "as postgres, who owns the table")
}

func TestParse(t *testing.T) {
	for name, want := range map[string]string{
		"":                    `"public"."mutex_lock"`,
		"mutex_lock":          `"public"."mutex_lock"`,
		"Locks":               `"public"."Locks"`,
		"a.b":                 `"a"."b"`,
		`"a.b".c`:             `"a.b"."c"`,
		`"a""b"."c.d"`:        `"a""b"."c.d"`,
		"schéma.ta ble":       `"schéma"."ta ble"`,
		`a"b.c`:               `"a""b"."c"`,
		"x." + pad(51):        `"x"."` + pad(51) + `"`,
		pad(63) + ".t":        `"` + pad(63) + `"."t"`,
		`public."mutex_lock"`: `"public"."mutex_lock"`,
	} {
		n, err := Parse(name)
		if err != nil || n.Lock != want {
			t.Errorf("Parse(%q) = %s, %v; want %s", name, n.Lock, err, want)
			continue
		}
		if again, err := Parse(n.String()); err != nil || again != n {
			t.Errorf("Parse(%q): its String %q is %v, %v", name, n.String(), again, err)
		}
	}
	for _, name := range []string{".", "a.", ".b", "a.b.c", `""`, `"a`, `"a"b`, "a\x00", "\xff", "x." + pad(52), pad(64) + ".t", `"a"."b"."c"`} {
		if n, err := Parse(name); err == nil {
			t.Errorf("Parse(%q) = %s, want an error", name, n.Lock)
		}
	}
	if got := Literal(`a'b\c`); got != `E'a''b\\c'` {
		t.Errorf("Literal: %s", got)
	}
}

func pad(n int) string { return strings.Repeat("n", n) }
