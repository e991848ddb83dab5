package schema

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex/internal/pgdb"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func open(t testing.TB, dsn string) *pgdb.DB {
	t.Helper()
	db, err := pgdb.Open(dsn, pgdb.Options{})
	pgtest.Must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := db.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return db
}

func parse(t testing.TB, table string) Names {
	t.Helper()
	n, err := Parse(table)
	pgtest.Must(t, err)
	return n
}

// shape describes all that a set-up made, in a form that can be compared.
func shape(t testing.TB, dsn string) string {
	t.Helper()
	return strings.Join(pgtest.Column[string](t, dsn, `
		WITH rel AS (
			SELECT c.*, n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
			WHERE n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
		)
		SELECT format('%s.%s %s %s %s', nspname, relname, relkind, reloptions, relreplident) FROM rel
		UNION ALL
		SELECT format('%s %s %s %s %s %s', rel.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
			pg_get_expr(d.adbin, d.adrelid))
		FROM rel JOIN pg_attribute a ON a.attrelid = rel.oid AND a.attnum > 0
		LEFT JOIN pg_attrdef d ON d.adrelid = rel.oid AND d.adnum = a.attnum
		UNION ALL
		SELECT pg_get_indexdef(i.indexrelid) || i.indisreplident FROM rel JOIN pg_index i ON i.indrelid = rel.oid
		UNION ALL
		SELECT format('%s %s %s', rel.relname, conname, pg_get_constraintdef(k.oid)) FROM rel JOIN pg_constraint k ON k.conrelid = rel.oid
		UNION ALL
		SELECT format('%s %s %s %s %s', schemaname, sequencename, increment_by, cache_size, cycle) FROM pg_sequences
		ORDER BY 1`), "\n")
}

func TestConcurrentFirstStarts(t *testing.T) {
	// Case 6, the loose form.
	for round := range 5 {
		dsn := pgtest.Shared(t).Database(t)
		n := parse(t, fmt.Sprintf("s%d.locks", round))
		var group sync.WaitGroup
		for range 16 {
			db := open(t, dsn)
			group.Go(func() {
				if err := Migrate(t.Context(), db, n); err != nil {
					t.Errorf("round %d: %v", round, err)
				}
				if err := Verify(t.Context(), db, n); err != nil {
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		group.Wait()
	}
}

func TestAForeignSessionMakesTheTable(t *testing.T) {
	// Case 6, the deterministic form: somebody who does not know our advisory
	// lock has made the table and not yet committed.
	dsn := pgtest.Shared(t).Database(t)
	for _, statement := range []string{
		"CREATE TABLE mutex_lock " + pythonColumns, "CREATE SEQUENCE mutex_lock_token", "CREATE SCHEMA other",
	} {
		n := parse(t, "")
		if strings.Contains(statement, "SCHEMA") {
			n = parse(t, "other.mutex_lock")
		}
		foreign, err := pgtest.Conn(t, dsn).Begin(t.Context())
		pgtest.Must(t, err)
		pgtest.Exec(t, foreign, statement)
		db := open(t, dsn)
		done := make(chan error, 1)
		go func() { done <- Migrate(t.Context(), db, n) }()
		pgtest.WaitFor(t, "the set-up to run into the foreign session", func() bool {
			return pgtest.One[bool](t, dsn, `SELECT EXISTS (SELECT 1 FROM pg_locks l JOIN pg_database d ON d.datname = current_database()
				WHERE NOT l.granted AND l.pid IN (SELECT pid FROM pg_stat_activity WHERE datid = d.oid))`)
		})
		pgtest.Must(t, foreign.Commit(t.Context()))
		if err := <-done; err != nil {
			t.Errorf("%s: %v", statement, err)
		}
		if err := Verify(t.Context(), db, n); err != nil {
			t.Errorf("%s: %v", statement, err)
		}
		pgtest.Exec(t, dsn, "DROP TABLE "+n.Lock+", "+n.Meta+", "+n.Waiter+", "+n.Event+"; DROP SEQUENCE "+n.Token)
	}
}

// pythonColumns is the table as the Python package makes it.
const pythonColumns = `(
	lock_name VARCHAR(64) NOT NULL, locked INT NOT NULL DEFAULT 1, instance_id VARCHAR(64) NOT NULL,
	last_heartbeat TIMESTAMPTZ NOT NULL, acquired_at TIMESTAMPTZ NOT NULL,
	CONSTRAINT mutex_lock_uq UNIQUE (locked, lock_name), CONSTRAINT mutex_lock_chk_locked CHECK (locked = 1))`

func TestThePythonTableIsExtendedUnderItsHolders(t *testing.T) {
	for form, columns := range map[string]string{
		"as the package makes it": pythonColumns,
		"as its manual shows it": strings.NewReplacer("mutex_lock_uq", "uq_mutex_lock", "mutex_lock_chk_locked", "chk_locked").
			Replace(pythonColumns),
		"without constraint names": strings.NewReplacer("CONSTRAINT mutex_lock_uq", "", "CONSTRAINT mutex_lock_chk_locked", "").
			Replace(pythonColumns),
	} {
		t.Run(form, func(t *testing.T) {
			dsn := pgtest.Shared(t).Database(t)
			n := parse(t, "")
			db := open(t, dsn)
			pgtest.Exec(t, dsn, "CREATE TABLE mutex_lock "+columns)
			pgtest.Exec(t, dsn, "INSERT INTO mutex_lock (lock_name, instance_id, last_heartbeat, acquired_at) VALUES ('job', 'python', now(), now())")
			// A transaction uses the table, as a guard does, and the upgrade
			// waits for it without keeping heartbeats out.
			user, err := pgtest.Conn(t, dsn).Begin(t.Context())
			pgtest.Must(t, err)
			pgtest.Exec(t, user, "SELECT 1 FROM mutex_lock FOR KEY SHARE")
			done := make(chan error, 1)
			go func() { done <- Migrate(t.Context(), db, n) }()
			waiting := func() bool {
				return pgtest.One[bool](t, dsn, "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'mutex_lock'::regclass)")
			}
			pgtest.WaitFor(t, "the upgrade to wait for the table", waiting)
			pgtest.WaitFor(t, "the upgrade to step back", func() bool { return !waiting() })
			beat := "UPDATE mutex_lock SET last_heartbeat = now() WHERE lock_name = 'job' AND instance_id = 'python'"
			pgtest.Exec(t, dsn, beat)
			pgtest.Must(t, user.Commit(t.Context()))
			pgtest.Must(t, <-done)
			pgtest.Must(t, Verify(t.Context(), db, n))
			if got := pgtest.Exec(t, dsn, beat); got != 1 {
				t.Error("the holder lost its row")
			}
			before := shape(t, dsn)
			pgtest.Must(t, Migrate(t.Context(), db, n))
			pgtest.Exec(t, dsn, "CREATE TABLE IF NOT EXISTS mutex_lock "+columns) // what Python does
			if after := shape(t, dsn); after != before {
				t.Errorf("a second set-up changed something:\n%s\n%s", before, after)
			}
		})
	}
}

func TestThePrintedScriptIsTheMigration(t *testing.T) {
	server := pgtest.Shared(t)
	psql, err := server.Program("psql")
	pgtest.Must(t, err)
	for i, table := range []string{"", `odd."L'o""ck.$1"`, `"-- {{lock}}".t\`} {
		n := parse(t, table)
		migrated, printed := server.Database(t), server.Database(t)
		pgtest.Must(t, Migrate(t.Context(), open(t, migrated), n))
		role := fmt.Sprintf(`printed "role" %d`, i)
		server.Role(t, role, "secret")
		script, err := SQL(n, role)
		pgtest.Must(t, err)
		for range 2 { // it can be run again
			cmd := exec.CommandContext(t.Context(), psql, "-X", "-v", "ON_ERROR_STOP=1", "-q", "-d", printed)
			cmd.Stdin = strings.NewReader(script)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("psql: %v\n%s\n%s", err, out, script)
			}
		}
		if a, b := shape(t, migrated), shape(t, printed); a != b {
			t.Errorf("%s: the migration made\n%s\nthe script\n%s", table, a, b)
		}
		limited := server.PasswordDSN(pgtest.One[string](t, printed, "SELECT current_database()::text"), role, "secret")
		db := open(t, limited)
		if err := Verify(t.Context(), db, n); err != nil {
			t.Errorf("%s: the role that got the rights: %v", table, err)
		}
		// Case 15: nothing is missing, so no right to create is needed.
		if err := Migrate(t.Context(), db, n); err != nil {
			t.Errorf("%s: a no-op: %v", table, err)
		}
	}
	for _, role := range []string{"a\x00b", "\xff", strings.Repeat("x", 64)} {
		if _, err := SQL(parse(t, ""), role); err == nil {
			t.Errorf("role %q was not refused", role)
		}
	}
}

func TestPublishedTablesCanBeChanged(t *testing.T) {
	dsn := pgtest.Shared(t).Database(t)
	pgtest.Must(t, Migrate(t.Context(), open(t, dsn), parse(t, "")))
	pgtest.Exec(t, dsn, "CREATE PUBLICATION everything FOR ALL TABLES")
	pgtest.Exec(t, dsn, "INSERT INTO mutex_lock (lock_name, instance_id, last_heartbeat, acquired_at) VALUES ('job', 'x', now(), now())")
	pgtest.Exec(t, dsn, "UPDATE mutex_lock SET last_heartbeat = now()")
	pgtest.Exec(t, dsn, "DELETE FROM mutex_lock; DELETE FROM mutex_lock_event; DELETE FROM mutex_lock_waiter")
}
