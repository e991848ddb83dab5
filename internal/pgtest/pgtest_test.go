package pgtest_test

import (
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgmutex/pgmutex/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestDatabasesAreFreshAndApart(t *testing.T) {
	t.Parallel()
	s := pgtest.Shared(t)
	first, second := s.Database(t), s.Database(t)
	pgtest.Exec(t, first, "CREATE TABLE mark (n int); INSERT INTO mark VALUES (1), (2)")
	if n := pgtest.One[int64](t, first, "SELECT count(*) FROM mark"); n != 2 {
		t.Errorf("the first database has %d rows, want 2", n)
	}
	if there := pgtest.One[bool](t, second, "SELECT to_regclass('mark') IS NOT NULL"); there {
		t.Error("the second database has the first one's table")
	}
}

func TestDatabaseIsDroppedWithItsSessions(t *testing.T) {
	t.Parallel()
	s := pgtest.Shared(t)
	var name string
	t.Run("use", func(t *testing.T) {
		dsn := s.Database(t)
		name = pgtest.One[string](t, dsn, "SELECT current_database()")
		_, err := pgx.Connect(t.Context(), dsn) // left open on purpose
		pgtest.Must(t, err)
	})
	left := pgtest.One[int64](t, s.DSN("postgres", pgtest.Superuser), "SELECT count(*) FROM pg_database WHERE datname = $1", name)
	if left != 0 {
		t.Errorf("database %s is still there", name)
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	s := pgtest.Shared(t)
	conn := pgtest.Conn(t, s.SocketDSN("postgres", pgtest.Superuser))
	for setting, want := range map[string]string{
		"fsync": "off", "synchronous_commit": "on", "max_connections": "200", "server_encoding": "UTF8",
	} {
		if got := pgtest.One[string](t, conn, "SELECT current_setting($1)", setting); got != want {
			t.Errorf("%s is %s, want %s", setting, got, want)
		}
	}
	if len(s.Socket()) >= 100 {
		t.Errorf("socket path %s is too long", s.Socket())
	}
	if major := pgtest.One[int](t, conn, "SELECT current_setting('server_version_num')::int / 10000"); major != s.Major() {
		t.Errorf("Major is %d, the server says %d", s.Major(), major)
	}
}

func TestSharedServerCannotBeStopped(t *testing.T) {
	t.Parallel()
	s := pgtest.Shared(t)
	for what, err := range map[string]error{
		"Stop": s.Stop(pgtest.Fast), "Start": s.Start(), "Restart": s.Restart(pgtest.Immediate), "Kill": s.Kill(), "Freeze": s.Freeze(),
	} {
		if err == nil {
			t.Errorf("%s of the shared server succeeded", what)
		}
	}
}

func TestRolesNeedTheirPassword(t *testing.T) {
	t.Parallel()
	s := pgtest.Shared(t)
	database := pgtest.One[string](t, s.Database(t), "SELECT current_database()")
	const name, password = "pgtest_role", "p@ss w'rd/#%?"
	s.Role(t, name, password, "CONNECTION LIMIT 3")

	if who := pgtest.One[string](t, s.PasswordDSN(database, name, password), "SELECT current_user::text"); who != name {
		t.Errorf("logged in as %s, want %s", who, name)
	}
	for what, dsn := range map[string]string{
		"none":         s.DSN(database, name),
		"wrong":        s.PasswordDSN(database, name, "p"),
		"none, socket": s.SocketDSN(database, name),
	} {
		conn, err := pgx.Connect(t.Context(), dsn)
		if err == nil {
			conn.Close(t.Context())
			t.Errorf("password %s: logged in", what)
			continue
		}
		var refused *pgconn.PgError
		if what == "wrong" && (!errors.As(err, &refused) || refused.Code != "28P01") {
			t.Errorf("password %s: %v, want 28P01", what, err)
		}
	}
}

func TestRoleIsDroppedWithWhatItOwns(t *testing.T) {
	t.Parallel()
	s := pgtest.Shared(t)
	dsn := s.Database(t)
	t.Run("use", func(t *testing.T) {
		s.Role(t, "pgtest_owner", "")
		pgtest.Exec(t, dsn, "CREATE SCHEMA own AUTHORIZATION pgtest_owner; CREATE TABLE seen (n int); GRANT SELECT ON seen TO pgtest_owner")
	})
	if there := pgtest.One[bool](t, dsn, "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = 'pgtest_owner')"); there {
		t.Error("the role is still there")
	}
}

func TestRestartKeepsPortAndData(t *testing.T) {
	t.Parallel()
	s := pgtest.New(t, pgtest.Options{Settings: map[string]string{"max_connections": "20"}})
	dsn := s.Database(t)
	pgtest.Exec(t, dsn, "CREATE TABLE mark (n int)")
	rows := int64(0)
	for what, cycle := range map[string]func() error{
		"fast":      func() error { return s.Restart(pgtest.Fast) },
		"immediate": func() error { return s.Restart(pgtest.Immediate) },
		"killed":    func() error { return errors.Join(s.Kill(), s.Start()) },
	} {
		pgtest.Exec(t, dsn, "INSERT INTO mark VALUES (1)")
		rows++
		conn := pgtest.Conn(t, dsn)
		if err := cycle(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if _, err := conn.Exec(t.Context(), "SELECT"); err == nil {
			t.Errorf("%s: an old session lives", what)
		}
		if n := pgtest.One[int64](t, dsn, "SELECT count(*) FROM mark"); n != rows {
			t.Errorf("%s: %d rows, want %d", what, n, rows)
		}
	}
	if got := pgtest.One[string](t, dsn, "SHOW max_connections"); got != "20" {
		t.Errorf("max_connections is %s, want 20", got)
	}
}

func TestStopAndStart(t *testing.T) {
	t.Parallel()
	s := pgtest.New(t, pgtest.Options{})
	if err := s.Start(); err == nil {
		t.Error("a running server was started")
	}
	pgtest.Must(t, s.Stop(pgtest.Fast))
	pgtest.Must(t, s.Stop(pgtest.Fast))
	if c, err := net.Dial("tcp", s.Addr()); err == nil {
		c.Close()
		t.Error("a stopped server accepts connections")
	}
	pgtest.Must(t, s.Start())
	pgtest.One[int](t, s.DSN("postgres", pgtest.Superuser), "SELECT 1")
	pgtest.Must(t, s.Close())
	pgtest.Must(t, s.Close())
	if err := s.Start(); err == nil {
		t.Error("a closed server was started")
	}
}

func TestFreezeStopsAnswers(t *testing.T) {
	t.Parallel()
	s := pgtest.New(t, pgtest.Options{})
	conn := pgtest.Conn(t, s.DSN("postgres", pgtest.Superuser))
	pgtest.Must(t, s.Freeze())
	answered := make(chan error, 1)
	go func() {
		_, err := conn.Exec(t.Context(), "SELECT")
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Errorf("a frozen server answered: %v", err)
	case <-soon():
	}
	pgtest.Must(t, s.Thaw())
	pgtest.Must(t, <-answered)

	// A frozen server hears no signal; it is stopped all the same.
	pgtest.Must(t, s.Freeze())
	pgtest.Must(t, s.Restart(pgtest.Fast))
	pgtest.Must(t, s.Freeze())
	start := time.Now()
	pgtest.Must(t, s.Close())
	if took := time.Since(start); took > 4*time.Second {
		t.Errorf("closing took %v: the postmaster had to kill its children", took)
	}
}

func TestSignalBackend(t *testing.T) {
	t.Parallel()
	s := pgtest.New(t, pgtest.Options{})
	dsn := s.Database(t)
	conn := pgtest.Conn(t, pgtest.With(dsn, "application_name", "victim"))
	pids := pgtest.Backends(t, dsn, "victim")
	if len(pids) != 1 {
		t.Fatalf("backends %v, want one", pids)
	}
	if err := s.SignalBackend(1, syscall.Signal(0)); err == nil {
		t.Error("process 1 was signalled")
	}
	pgtest.Must(t, s.SignalBackend(pids[0], syscall.SIGTERM))
	pgtest.WaitFor(t, "the session to end", func() bool { return len(pgtest.Backends(t, dsn, "victim")) == 0 })
	if _, err := conn.Exec(t.Context(), "SELECT"); err == nil {
		t.Error("the session survived")
	}
}

func TestLog(t *testing.T) {
	t.Parallel()
	s := pgtest.Shared(t)
	dsn := s.Database(t)
	conn := pgtest.Conn(t, dsn)
	database := conn.Config().Database
	mark := s.LogMark()
	_, err := conn.Exec(t.Context(), "SELECT 1/0")
	var failed *pgconn.PgError
	if !errors.As(err, &failed) || failed.Code != "22012" {
		t.Fatalf("got %v", err)
	}
	lines := pgtest.ErrorLines(pgtest.DatabaseLines(s.LogSince(mark), database))
	if len(lines) != 1 || !strings.Contains(lines[0], "division by zero") {
		t.Errorf("error lines %q, want the division by zero", lines)
	}
	if lines := pgtest.ErrorLines(pgtest.DatabaseLines(s.LogSince(s.LogMark()), database)); len(lines) != 0 {
		t.Errorf("error lines after the last mark: %q", lines)
	}
}

func TestWALBytes(t *testing.T) {
	t.Parallel()
	s := pgtest.New(t, pgtest.Options{})
	conn := pgtest.Conn(t, s.Database(t))
	before := pgtest.WALBytes(t, conn)
	pgtest.Exec(t, conn, "CREATE TABLE mark (n int)")
	if after := pgtest.WALBytes(t, conn); after <= before {
		t.Errorf("position %d after creating a table, %d before", after, before)
	}
}
