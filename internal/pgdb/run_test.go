package pgdb

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex/internal/pgtest"
)

func TestRun(t *testing.T) {
	db := open(t, fresh(t), Options{})
	if db.Version() != 0 || db.Direct() || db.SettingsApplied() {
		t.Errorf("facts before the first connection: %+v", db.Facts())
	}
	var got []int
	err := db.Run(t.Context(), Keep, st("SELECT generate_series(1, $1::int)"), []any{3}, func(row Row) error {
		var n int
		defer func() { got = append(got, n) }()
		return row.Scan(&n)
	})
	pgtest.Must(t, err)
	if len(got) != 3 || got[2] != 3 {
		t.Errorf("rows: %v", got)
	}
	f := db.Facts()
	if !f.Direct || !f.Settings || f.Standby || f.Version < 140000 || f.Role != pgtest.Superuser || f.SynchronousCommit == "" {
		t.Errorf("facts: %+v", f)
	}
	if work, keep := pid(t, db, Work), pid(t, db, Keep); work == keep {
		t.Error("both lanes use one connection")
	} else if again := pid(t, db, Work); again != work {
		t.Error("the lane does not keep its connection")
	}
}

func TestStatementTexts(t *testing.T) {
	db := open(t, fresh(t), Options{})
	both := Statement{Name: "which", SQL: "SELECT 'any'", Direct: "SELECT 'direct'"}
	var got string
	scan := func(row Row) error { return row.Scan(&got) }
	pgtest.Must(t, db.Run(t.Context(), Work, both, nil, scan))
	if got != "direct" {
		t.Errorf("a direct connection ran the text for %q", got)
	}
	both.Direct = ""
	pgtest.Must(t, db.Run(t.Context(), Work, both, nil, scan))
	if got != "any" {
		t.Errorf("without a text of its own, a direct connection ran the one for %q", got)
	}
}

// Errors of the server are definite, and the connection stays.
func TestServerErrors(t *testing.T) {
	dsn := fresh(t)
	pgtest.Exec(t, dsn, "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
	db := open(t, dsn, Options{})
	before := pid(t, db, Work)
	for sql, want := range map[string]Class{
		"SELECT 1/0":                  Definite,
		"SELECT * FROM nosuch":        Undefined,
		"SELECT nosuch FROM t":        Undefined,
		"SELECT * FROM nosuch.t":      Undefined,
		"INSERT INTO t VALUES (1)":    Duplicate,
		"SELEKT":                      Definite,
		"SELECT $1::int":              NotSent, // an argument is missing
		"SELECT pg_sleep(600) FROM t": Canceled,
	} {
		if want == Canceled {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			pid, failed := busy(t, ctx, dsn, db, Work)
			pgtest.One[bool](t, dsn, "SELECT pg_cancel_backend($1)", pid)
			wantClass(t, <-failed, Canceled)
			continue
		}
		err := db.Run(t.Context(), Work, st(sql), nil, nil)
		wantClass(t, err, want)
		wantText(t, err.Error(), "test: ")
	}
	wantClass(t, db.Run(t.Context(), Work, st("SELECT $1::int"), []any{struct{}{}}, nil), NotSent)
	if after := pid(t, db, Work); after != before {
		t.Error("a definite error cost the connection")
	}
}

func TestRowWait(t *testing.T) {
	dsn := fresh(t)
	pgtest.Exec(t, dsn, "CREATE TABLE t (id int); INSERT INTO t VALUES (1)")
	conn := pgtest.Conn(t, dsn)
	pgtest.Exec(t, conn, "BEGIN")
	pgtest.Exec(t, conn, "UPDATE t SET id = 2")
	db := open(t, dsn, Options{RowWait: 20 * time.Millisecond})
	wantClass(t, db.Run(t.Context(), Work, st("UPDATE t SET id = 3"), nil, nil), RowLocked)
}

func TestDenied(t *testing.T) {
	s := pgtest.Shared(t)
	s.Role(t, "denied_app", "x")
	dsn := s.Database(t)
	pgtest.Exec(t, dsn, "CREATE TABLE t (id int)")
	db := open(t, pgtest.With(s.PasswordDSN(pgtest.One[string](t, dsn, "SELECT current_database()"), "denied_app", "x")), Options{})
	err := db.Run(t.Context(), Work, st("SELECT * FROM t"), nil, nil)
	wantClass(t, err, Denied)
	wantIs(t, err, fs.ErrPermission)
	if db.Role() != "denied_app" {
		t.Errorf("Role = %q", db.Role())
	}
}

// A context that ends in the middle leaves the outcome unknown and costs the
// connection; the next statement has a new one.
func TestContextEndsInTheMiddle(t *testing.T) {
	dsn := fresh(t)
	db := open(t, dsn, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	before, failed := busy(t, ctx, dsn, db, Work)
	cancel()
	err := <-failed
	wantClass(t, err, Unknown)
	wantIs(t, err, context.Canceled)
	if after := pid(t, db, Work); after == before {
		t.Error("the connection was kept")
	}
	pgtest.WaitFor(t, "the interrupted session to end", func() bool {
		return pgtest.One[int](t, dsn, "SELECT count(*)::int FROM pg_stat_activity WHERE pid = $1", before) == 0
	})
}

func TestContextEndedBefore(t *testing.T) {
	db := open(t, fresh(t), Options{})
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("why")
	cancel(why)
	err := db.Run(ctx, Work, st("SELECT 1"), nil, nil)
	wantClass(t, err, NotSent)
	wantIs(t, err, context.Canceled)
	wantIs(t, err, why)
}

// While a lane is busy, another caller waits no longer than its context, and the
// other lane is free.
func TestLanesAreApart(t *testing.T) {
	dsn := fresh(t)
	db := open(t, dsn, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	_, failed := busy(t, ctx, dsn, db, Work)
	pid(t, db, Keep)

	waiting, stop := context.WithTimeout(t.Context(), time.Millisecond)
	defer stop()
	err := db.Run(waiting, Work, st("SELECT 1"), nil, nil)
	wantClass(t, err, NotSent)
	wantIs(t, err, context.DeadlineExceeded)
	cancel()
	wantClass(t, <-failed, Unknown)
	pid(t, db, Work)
}

// A session that the server has ended is noticed before a statement is entrusted
// to it.
func TestTerminatedBackend(t *testing.T) {
	dsn := fresh(t)
	db := open(t, dsn, Options{})
	for _, lane := range []Lane{Work, Keep} {
		before := pid(t, db, lane)
		pgtest.One[bool](t, dsn, "SELECT pg_terminate_backend($1, 30000)", before)
		if after := pid(t, db, lane); after == before {
			t.Error("the same session answered")
		}
	}
}

// One that ends with the statement under way leaves its outcome unknown.
func TestTerminatedInTheMiddle(t *testing.T) {
	dsn := fresh(t)
	db := open(t, dsn, Options{})
	before, failed := busy(t, t.Context(), dsn, db, Keep)
	pgtest.One[bool](t, dsn, "SELECT pg_terminate_backend($1)", before)
	err := <-failed
	wantClass(t, err, Unknown)
	if code := SQLState(err); code != "57P01" {
		t.Errorf("SQLSTATE %q", code)
	}
	pid(t, db, Keep)
}

// A read-only server costs the connection: the next may lead to the primary.
func TestReadOnly(t *testing.T) {
	s := pgtest.Shared(t)
	dsn := s.Database(t)
	name := pgtest.One[string](t, dsn, "SELECT current_database()")
	pgtest.Exec(t, dsn, "ALTER DATABASE "+name+" SET default_transaction_read_only = on")
	db := open(t, dsn, Options{})
	before := pid(t, db, Work)
	if !db.Facts().ReadOnly {
		t.Error("Facts.ReadOnly is not set")
	}
	wantClass(t, db.Run(t.Context(), Work, st("CREATE TABLE t ()"), nil, nil), ReadOnly)
	pgtest.Exec(t, dsn, "BEGIN READ WRITE; ALTER DATABASE "+name+" RESET default_transaction_read_only; COMMIT")
	pgtest.Must(t, db.Run(t.Context(), Work, st("CREATE TABLE t ()"), nil, nil))
	if after := pid(t, db, Work); after == before {
		t.Error("the connection was kept")
	}
}

// What the caller does with a row does not harm the connection.
func TestEachFails(t *testing.T) {
	db := open(t, fresh(t), Options{})
	before := pid(t, db, Work)
	stop := errors.New("stop")
	err := db.Run(t.Context(), Work, st("SELECT generate_series(1, 1000)"), nil, func(Row) error { return stop })
	wantIs(t, err, stop)
	wantClass(t, err, Unknown)
	err = db.Run(t.Context(), Work, st("SELECT 'text' FROM generate_series(1, 3)"), nil, func(row Row) error {
		var n int
		return row.Scan(&n)
	})
	if err == nil {
		t.Error("text was scanned into an int")
	}
	if after := pid(t, db, Work); after != before {
		t.Error("an error of the caller's cost the connection")
	}

	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic did not pass through")
			}
		}()
		_ = db.Run(t.Context(), Work, st("SELECT 1"), nil, func(Row) error { panic("oops") })
	}()
	if after := pid(t, db, Work); after == before {
		t.Error("the connection was kept after a panic")
	}
}

// A table that changes under a prepared statement is no matter.
func TestCachedPlan(t *testing.T) {
	dsn := fresh(t)
	pgtest.Exec(t, dsn, "CREATE TABLE t (a int)")
	db := open(t, dsn, Options{})
	before := pid(t, db, Work)
	pgtest.Must(t, db.Run(t.Context(), Work, st("SELECT * FROM t"), nil, nil))
	pgtest.Exec(t, dsn, "ALTER TABLE t ADD b int; INSERT INTO t VALUES (1, 2)")
	rows := 0
	pgtest.Must(t, db.Run(t.Context(), Work, st("SELECT * FROM t"), nil, func(row Row) error {
		rows++
		var a, b int
		return row.Scan(&a, &b)
	}))
	if rows != 1 || pid(t, db, Work) != before {
		t.Errorf("%d rows, connection kept: %v", rows, pid(t, db, Work) == before)
	}
	// Neither are prepared statements that somebody took away.
	pgtest.Must(t, db.Run(t.Context(), Work, st("DISCARD ALL"), nil, nil))
	pgtest.Must(t, db.Run(t.Context(), Work, st("SELECT * FROM t"), nil, nil))
}

// A warning that the commit was not replicated is not a success.
func TestWarningIsUnknown(t *testing.T) {
	s := pgtest.New(t, pgtest.Options{Settings: map[string]string{"synchronous_standby_names": "'nobody'"}})
	dsn := pgtest.With(s.DSN("postgres", pgtest.Superuser), "synchronous_commit", "local")
	pgtest.Exec(t, dsn, "CREATE TABLE t (id int)")
	var once sync.WaitGroup
	// A role that does not want to hear of warnings is told of this one.
	db := open(t, pgtest.With(s.DSN("postgres", pgtest.Superuser), "client_min_messages", "error"), Options{})
	before := pid(t, db, Work)
	once.Go(func() {
		err := db.Run(context.WithoutCancel(t.Context()), Work, st("INSERT INTO t VALUES (1)"), nil, nil)
		wantClass(t, err, Unknown)
		if SQLState(err) != "01000" {
			t.Errorf("SQLSTATE of %v", err)
		}
	})
	pgtest.WaitFor(t, "the commit to wait for the standby", func() bool {
		return pgtest.One[int](t, dsn, "SELECT count(*)::int FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND pid = $1", before) == 1
	})
	pgtest.One[bool](t, dsn, "SELECT pg_cancel_backend($1)", before)
	once.Wait()
	pid(t, db, Work)
}

func TestOnConnect(t *testing.T) {
	dsn := fresh(t)
	calls := 0
	db := open(t, dsn, Options{OnConnect: func(ctx context.Context, q Querier) (any, error) {
		calls++
		if _, err := q.Exec(ctx, "SELECT nosuch"); Classify(err) != Undefined {
			t.Errorf("a failed statement: %v", err)
		}
		var pid int32
		err := q.Query(ctx, "SELECT pg_backend_pid() + $1::int", []any{0}, func(row Row) error { return row.Scan(&pid) })
		return pid, err
	}})
	var session any
	each := func(row Row) error { session = row.Session(); return nil }
	pgtest.Must(t, db.Run(t.Context(), Work, st("SELECT 1"), nil, each))
	pgtest.Must(t, db.Run(t.Context(), Work, st("SELECT 1"), nil, each))
	if session != pid(t, db, Work) || calls != 1 {
		t.Errorf("Session = %v after %d calls", session, calls)
	}

	refuse := errors.New("refuse")
	db = open(t, dsn, Options{Application: "refused", OnConnect: func(context.Context, Querier) (any, error) { return nil, refuse }})
	err := db.Check(t.Context())
	wantIs(t, err, refuse)
	wantClass(t, err, NotSent)
	gone(t, dsn, "pgmutex refused")
}
