package lease

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/pgtest"
	"github.com/pgmutex/pgmutex/internal/schema"
)

// TestStatementsBringTheirSettings is about the texts for connections that are
// not ours alone: what they need they set for their own transaction.
func TestStatementsBringTheirSettings(t *testing.T) {
	dsn := database(t, nil)
	names, err := schema.Parse("")
	pgtest.Must(t, err)
	s := newStatements(names)
	conn := pgtest.Conn(t, dsn)
	pgtest.Exec(t, conn, "SET synchronous_commit = off; SET lock_timeout = '7s'; SET client_min_messages = error")
	id := newID()
	for _, st := range []struct {
		name, text string
		args       []any
		commit     string
	}{
		{"acquire", s.acquire.SQL, []any{"job", id, 1.0, 1.0, 1.0, nil, false, "ch"}, "on"},
		{"take", s.take.SQL, []any{"job", id, 1, 1, 1, nil, 1, false, "", "{}", false, "ch"}, "off"}, // does not get to write
		{"renew", s.renew.SQL, []any{"job", id, 1}, "on"},
		{"renew batch", s.renewBatch.SQL, []any{"{job}", "{" + id + "}", "{1}"}, "on"},
		{"renew around", s.renewAround.SQL, []any{"{job}", "{" + id + "}", "{1}"}, "on"},
		{"join", s.join.SQL, []any{"job", "ch", "x"}, "off"},
		{"force stop", s.forceStop.SQL, []any{"job", id, "x", ""}, "on"},
		{"release", s.release.SQL, []any{"job", id, true, 1}, "on"},
		{"release batch", s.releaseBatch.SQL, []any{"{job}", "{" + id + "}", "{1}", "{t}"}, "on"},
	} {
		tx, err := conn.Begin(t.Context())
		pgtest.Must(t, err)
		rows, err := tx.Query(t.Context(), st.text, append([]any{pgx.QueryExecModeExec}, st.args...)...)
		pgtest.Must(t, err)
		rows.Close()
		pgtest.Must(t, rows.Err())
		if got := pgtest.One[string](t, tx, "SHOW synchronous_commit"); got != st.commit {
			t.Errorf("%s: synchronous_commit is %s, want %s", st.name, got, st.commit)
		}
		if got := pgtest.One[string](t, tx, "SHOW lock_timeout"); got != rowWait && st.name != "take" {
			t.Errorf("%s: lock_timeout is %s", st.name, got)
		}
		pgtest.Must(t, tx.Commit(t.Context()))
		if got := pgtest.One[string](t, conn, "SELECT current_setting('synchronous_commit') || current_setting('lock_timeout')"); got != "off7s" {
			t.Errorf("%s left %s behind", st.name, got)
		}
	}
}

func startSQL(t testing.TB, dsn string) *client {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	pgtest.Must(t, err)
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { _ = db.Close() })
	return startOn(t, db)
}

func startOn(t testing.TB, db *sql.DB) *client {
	t.Helper()
	eng, err := New(db, nil)
	pgtest.Must(t, err)
	return started(t, eng)
}

func TestRolesWithStrictIsolation(t *testing.T) {
	// Case 10, on connections that we may not change, too.
	dsn := database(t, nil)
	pgtest.Shared(t).Role(t, "strict", "secret", "SUPERUSER")
	name := pgtest.One[string](t, dsn, "SELECT current_database()::text")
	strict := pgtest.Shared(t).PasswordDSN(name, "strict", "secret")
	for _, level := range []string{"serializable", "repeatable read"} {
		pgtest.Exec(t, dsn, "ALTER ROLE strict SET default_transaction_isolation = '"+level+"'")
		clients := []*client{start(t, strict, nil), start(t, strict, nil), startSQL(t, strict), startSQL(t, strict)}
		done := make(chan error, len(clients))
		for _, c := range clients {
			go func() { done <- c.churn(50) }()
		}
		for range clients {
			pgtest.Must(t, <-done)
		}
	}
}

// churn takes and releases one name, or is told that it is busy, n times.
func (c *client) churn(n int) error {
	for range n {
		r := request("job")
		switch a := c.try(r); a.Outcome {
		case engine.Granted:
			for _, s := range c.Renew(c.t.Context(), []engine.Term{r.Term, {Name: "none", ID: "none"}})[:1] {
				if s.Health != engine.Held {
					return s.Err
				}
			}
			if removal := c.release(r.Term); removal.Outcome != engine.Removed {
				return removal.Err
			}
		case engine.Busy:
		default:
			return a.Err
		}
	}
	return nil
}
