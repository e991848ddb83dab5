package pgdb

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// Whatever the role has for itself, our sessions have what they need, and only
// that.
func TestSettings(t *testing.T) {
	s := pgtest.Shared(t)
	s.Role(t, "settings_app", "x")
	dsn := s.Database(t)
	for _, set := range []string{
		"statement_timeout = '50ms'", "lock_timeout = '1h'", "synchronous_commit = off", "client_min_messages = error",
		"default_transaction_isolation = serializable", "idle_in_transaction_session_timeout = '1ms'",
		"idle_session_timeout = '100ms'", "search_path = nowhere", "datestyle = 'German'", "default_transaction_read_only = on",
	} {
		pgtest.Exec(t, dsn, "ALTER ROLE settings_app SET "+set)
	}
	name := pgtest.One[string](t, dsn, "SELECT current_database()")
	db := open(t, s.PasswordDSN(name, "settings_app", "x"), Options{RowWait: 70 * time.Millisecond})
	for setting, want := range map[string]string{
		"statement_timeout": "0", "lock_timeout": "70ms", "synchronous_commit": "on", "client_min_messages": "warning",
		"transaction_isolation": "read committed", "idle_in_transaction_session_timeout": "1min",
		"idle_session_timeout": "0", "search_path": "nowhere", "datestyle": "German, DMY", "transaction_read_only": "on",
	} {
		if got := one[string](t, db, Work, "SELECT current_setting($1)", setting); got != want {
			t.Errorf("%s = %q, want %q", setting, got, want)
		}
	}
	f := db.Facts()
	if f.SynchronousCommit != "off" || f.Isolation != "serializable" || !f.ReadOnly {
		t.Errorf("facts: %+v", f)
	}
	pgtest.Must(t, db.Run(t.Context(), Work, st("SELECT pg_sleep(0.1)"), nil, nil))
}

// A level of synchronous_commit other than off is the role's own choice, and
// nothing is left behind for others.
func TestSettingsLeaveTheRest(t *testing.T) {
	db := open(t, pgtest.With(fresh(t), "synchronous_commit", "remote_apply", "client_min_messages", "debug1"), Options{})
	if got := one[string](t, db, Work, "SELECT current_setting('synchronous_commit')"); got != "remote_apply" {
		t.Errorf("synchronous_commit = %q", got)
	}
	if got := one[string](t, db, Work, "SELECT current_setting('client_min_messages')"); got != "debug1" {
		t.Errorf("client_min_messages = %q", got)
	}
}

func TestApplicationName(t *testing.T) {
	dsn := fresh(t)
	name := func(dsn, suffix string) string {
		return one[string](t, open(t, dsn, Options{Application: suffix}), Work, "SELECT current_setting('application_name')")
	}
	if got := name(dsn, ""); got != "pgmutex" {
		t.Errorf("application_name = %q", got)
	}
	if got := name(dsn, "wörker"); got != "pgmutex w?rker" {
		t.Errorf("application_name = %q", got)
	}
	if got := name(pgtest.With(dsn, "application_name", "mine"), "worker"); got != "mine" {
		t.Errorf("application_name = %q", got)
	}
}

func TestQueryModes(t *testing.T) {
	dsn := fresh(t)
	for mode, prepared := range map[string]int{"cache_statement": 1, "exec": 0, "simple_protocol": 0, "cache_describe": 0, "describe_exec": 0} {
		t.Run(mode, func(t *testing.T) {
			db := open(t, pgtest.With(dsn, "default_query_exec_mode", mode), Options{})
			const sql = "SELECT count(*)::int FROM pg_prepared_statements WHERE statement LIKE 'SELECT count%' AND $1 <> ''"
			if got := one[int](t, db, Work, sql, "x"); got != prepared {
				t.Errorf("%d prepared statements, want %d", got, prepared)
			}
			arguments(t, db)
			wantClass(t, db.Run(t.Context(), Work, st("SELECT 1/0"), nil, nil), Definite)
			wantClass(t, db.Run(t.Context(), Work, st("SELECT * FROM nosuch"), nil, nil), Undefined)
			pgtest.Must(t, db.Tx(t.Context(), func(ctx context.Context, q Querier) error {
				return q.Query(ctx, "SELECT $1::int", []any{7}, func(row Row) error { return nil })
			}))
		})
	}
	db := open(t, pgtest.With(dsn, "statement_cache_capacity", "0"), Options{})
	pid(t, db, Work)
}

// arguments passes values of the kinds that engines use, in whatever mode the
// connection is in.
func arguments(t testing.TB, db *DB) {
	t.Helper()
	now := time.Now()
	var none *string
	args := []any{[]string{"a", `b,"\\ {}`}, []int64{1, 2}, 90 * time.Second, now, none, `{"k": "v"}`, true, []time.Duration{time.Second}, []*string{none}}
	var texts []string
	var numbers []int64
	var seconds, epoch, all float64
	var null *string
	var value string
	var yes bool
	err := db.Run(t.Context(), Work, st(`SELECT $1::text[], $2::bigint[], extract(epoch FROM $3::interval)::float8,
		extract(epoch FROM $4::timestamptz)::float8, $5::text, $6::jsonb->>'k', $7::bool, extract(epoch FROM ($8::interval[])[1])::float8
		WHERE ($9::text[])[1] IS NULL`), args,
		func(row Row) error { return row.Scan(&texts, &numbers, &seconds, &epoch, &null, &value, &yes, &all) })
	if err != nil || len(texts) != 2 || texts[1] != `b,"\\ {}` || len(numbers) != 2 || seconds != 90 || all != 1 || !yes || value != "v" || null != nil ||
		int64(epoch) != now.Unix() {
		t.Errorf("%v: %q %v %v %v %v %q %v %v", err, texts, numbers, seconds, epoch, null, value, yes, all)
	}
}

func TestTx(t *testing.T) {
	dsn := pgtest.With(fresh(t), "default_transaction_isolation", "serializable")
	db := open(t, dsn, Options{})
	before := pid(t, db, Work)
	pgtest.Must(t, db.Tx(t.Context(), func(ctx context.Context, q Querier) error {
		if _, err := q.Exec(ctx, "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int)"); err != nil {
			return err
		}
		n, err := q.Exec(ctx, "INSERT INTO t SELECT generate_series(1, $1)", 3)
		if n != 3 {
			t.Errorf("%d rows", n)
		}
		return errors.Join(err, q.Query(ctx, "SELECT current_setting('transaction_isolation')", nil, func(row Row) error {
			var level string
			defer func() {
				if level != "read committed" {
					t.Errorf("isolation %q", level)
				}
			}()
			return row.Scan(&level)
		}))
	}))
	if n := pgtest.One[int](t, dsn, "SELECT count(*)::int FROM t"); n != 3 {
		t.Errorf("%d rows committed", n)
	}

	stop := errors.New("stop")
	err := db.Tx(t.Context(), func(ctx context.Context, q Querier) error {
		_, err := q.Exec(ctx, "DELETE FROM t")
		return errors.Join(err, stop)
	})
	wantIs(t, err, stop)
	// An error that fn keeps to itself has spoiled the transaction all the same.
	err = db.Tx(t.Context(), func(ctx context.Context, q Querier) error {
		_, _ = q.Exec(ctx, "DELETE FROM t")
		_, err := q.Exec(ctx, "SELECT 1/0")
		wantClass(t, err, Definite)
		return nil
	})
	wantClass(t, err, Definite)
	if n := one[int](t, db, Work, "SELECT count(*)::int FROM t"); n != 3 {
		t.Errorf("%d rows are left after rollbacks", n)
	}
	if pid(t, db, Work) != before {
		t.Error("a rollback cost the connection")
	}

	func() {
		defer func() { _ = recover() }()
		_ = db.Tx(t.Context(), func(ctx context.Context, q Querier) error {
			_, _ = q.Exec(ctx, "DELETE FROM t")
			panic("oops")
		})
	}()
	if n := one[int](t, db, Work, "SELECT count(*)::int FROM t"); n != 3 {
		t.Errorf("%d rows are left after a panic", n)
	}

	ctx, cancel := context.WithCancel(t.Context())
	err = db.Tx(ctx, func(ctx context.Context, q Querier) error {
		_, err := q.Exec(ctx, "DELETE FROM t")
		cancel()
		return err
	})
	wantIs(t, err, context.Canceled)
	wantClass(t, err, NotSent)
	if n := one[int](t, db, Work, "SELECT count(*)::int FROM t"); n != 3 {
		t.Errorf("%d rows are left after the context ended", n)
	}
}

// The pooler is seen, its restrictions are obeyed, and nothing is set in its
// sessions.
func TestPooler(t *testing.T) {
	s := pgtest.Shared(t)
	direct := s.Database(t)
	for _, mode := range []string{"transaction", "session", "statement"} {
		t.Run(mode, func(t *testing.T) {
			dsn := pgtest.NewBouncer(t, s, mode, pgtest.BouncerOptions{}).DSN(direct)
			dbs := []*DB{open(t, dsn, Options{}), open(t, dsn, Options{}), open(t, dsn, Options{})}
			if mode == "session" {
				dbs = dbs[:1] // the pool has two connections
			}
			both := Statement{Name: "which", SQL: "SELECT current_setting('lock_timeout') || $1", Direct: "SELECT 'direct' || $1"}
			for range 5 {
				for _, db := range dbs {
					for _, lane := range []Lane{Work, Keep} {
						var got string
						pgtest.Must(t, db.Run(t.Context(), lane, both, []any{"!"}, func(row Row) error { return row.Scan(&got) }))
						if got != "0!" {
							t.Errorf("got %q", got)
						}
					}
				}
			}
			db := dbs[0]
			arguments(t, db)
			if db.Direct() || db.SettingsApplied() || db.CanListen() || db.Version() == 0 {
				t.Errorf("facts: %+v", db.Facts())
			}
			_, err := db.Listen("c", func(string, bool) {})
			wantIs(t, err, ErrNoListen)
			wantIs(t, err, errors.ErrUnsupported)
		})
	}
}
