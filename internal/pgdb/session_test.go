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
		"enable_seqscan": "off", "tcp_keepalives_idle": "60", "tcp_keepalives_interval": "10", "tcp_keepalives_count": "6",
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
	db := open(t, pgtest.With(fresh(t), "synchronous_commit", "remote_apply", "client_min_messages", "debug1", "tcp_keepalives_idle", "20"), Options{})
	if got := one[string](t, db, Work, "SELECT current_setting('synchronous_commit')"); got != "remote_apply" {
		t.Errorf("synchronous_commit = %q", got)
	}
	if got := one[string](t, db, Work, "SELECT current_setting('client_min_messages')"); got != "debug1" {
		t.Errorf("client_min_messages = %q", got)
	}
	if got := one[string](t, db, Work, "SELECT current_setting('tcp_keepalives_idle')"); got != "20" {
		t.Errorf("tcp_keepalives_idle = %q", got)
	}
	if got := one[string](t, db, Work, "SELECT current_setting('tcp_keepalives_count')"); got == "6" {
		t.Error("where it is the shorter, nothing else is changed")
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
			pgtest.Must(t, db.Look(t.Context(), func(ctx context.Context, q Querier) error {
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

func TestLook(t *testing.T) {
	db := open(t, fresh(t), Options{})
	before := pid(t, db, Work)
	stop := errors.New("stop")
	err := db.Look(t.Context(), func(ctx context.Context, q Querier) error {
		n, err := q.Exec(ctx, "CREATE TABLE t (id int); INSERT INTO t VALUES (1), (2)")
		if n != 2 {
			t.Errorf("%d rows", n)
		}
		_, failed := q.Exec(ctx, "SELECT 1/0")
		wantClass(t, failed, Definite)
		n, again := q.Exec(ctx, "INSERT INTO t SELECT generate_series(1, $1::int)", 3)
		if n != 3 {
			t.Errorf("%d rows", n)
		}
		return errors.Join(err, again, stop)
	})
	wantIs(t, err, stop)
	if n := one[int](t, db, Work, "SELECT count(*)::int FROM t"); n != 5 {
		t.Errorf("%d rows: a statement was no transaction of its own", n)
	}
	if pid(t, db, Work) != before {
		t.Error("an error cost the connection")
	}
	func() {
		defer func() { _ = recover() }()
		_ = db.Look(t.Context(), func(context.Context, Querier) error { panic("oops") })
	}()
	if pid(t, db, Work) == before {
		t.Error("the connection was kept after a panic")
	}
}

// A script is one transaction, whatever the role's isolation, and through every
// pooler.
func TestScript(t *testing.T) {
	s := pgtest.Shared(t)
	strict := func() string { return pgtest.With(s.Database(t), "default_transaction_isolation", "serializable") }
	for name, source := range map[string]string{
		"direct":    strict(),
		"simple":    pgtest.With(strict(), "default_query_exec_mode", "simple_protocol"),
		"statement": pgtest.NewBouncer(t, s, "statement", pgtest.BouncerOptions{}).DSN(s.Database(t)),
	} {
		t.Run(name, func(t *testing.T) {
			db := open(t, source, Options{})
			pgtest.Must(t, db.Script(t.Context(), "make", "SET LOCAL lock_timeout = '7s'", "CREATE TABLE t (level text, wait text)",
				"INSERT INTO t VALUES (current_setting('transaction_isolation'), current_setting('lock_timeout'))"))
			if got := one[string](t, db, Work, "SELECT level || ' ' || wait FROM t"); got != "read committed 7s" {
				t.Errorf("in the script: %q", got)
			}
			if got := one[string](t, db, Work, "SELECT current_setting('lock_timeout')"); got == "7s" {
				t.Error("a setting was left behind")
			}
			err := db.Script(t.Context(), "spoil", "DELETE FROM t", "SELECT 1/0", "DROP TABLE t")
			wantClass(t, err, Definite)
			wantText(t, err.Error(), "spoil: ")
			if n := one[int](t, db, Work, "SELECT count(*)::int FROM t"); n != 1 {
				t.Errorf("%d rows are left after a failure", n)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			wantClass(t, db.Script(ctx, "late", "DROP TABLE t"), NotSent)
		})
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
