package main_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pgmutex/pgmutex/internal/faultconn"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// findings returns what doctor says, by name, each state with its texts.
func findings(t *testing.T, p *process) map[string][3]string {
	t.Helper()
	found := map[string][3]string{}
	for line := range strings.Lines(p.stdout()) {
		var f struct{ Name, State, Found, Fix string }
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if f.Found == "" || (f.Fix == "") != (f.State == "ok") || strings.Contains(f.Found+f.Fix, "\n") {
			t.Errorf("finding %+v", f)
		}
		found[f.Name] = [3]string{f.State, f.Found, f.Fix}
	}
	return found
}

// state checks one finding.
func state(t *testing.T, found map[string][3]string, name, want, says string) {
	t.Helper()
	if f := found[name]; f[0] != want || !strings.Contains(f[1]+" "+f[2], says) {
		t.Errorf("%s is %q, want %s with %q", name, f, want, says)
	}
}

// The servers of these tests have fsync off, which doctor calls an error.
func durable(t *testing.T) *world {
	t.Helper()
	server := pgtest.New(t, pgtest.Options{Durable: true})
	w := &world{t: t, dsn: server.DSN("postgres", pgtest.Superuser), dir: t.TempDir()}
	w.run("init").want(0)
	return w
}

func TestDoctorOnHealthyServer(t *testing.T) {
	t.Parallel()
	w := durable(t)
	_, end := w.hold("n")
	defer end()
	p := w.run("doctor", "--json").want(0).silent()
	found := findings(t, p)
	for _, name := range []string{
		"version", "primary", "pooler", "isolation", "synchronous_commit", "fsync", "clock", "schema", "unique index", "heartbeat index",
		"privileges", "listen", "keepalive", "timeouts", "lock table", "long transactions", "autovacuum", "heartbeats in place",
	} {
		state(t, found, name, "ok", "")
	}
	state(t, found, "listen", "ok", "heard after")
	state(t, found, "schema", "ok", "version 1")
	t.Logf("took %v", p.took)

	// What a role or a database sets.
	pgtest.Exec(t, w.dsn, `ALTER DATABASE postgres SET default_transaction_isolation = 'serializable';
		ALTER DATABASE postgres SET synchronous_commit = off; ALTER DATABASE postgres SET statement_timeout = '1s'`)
	found = findings(t, w.run("doctor", "--json").want(0))
	state(t, found, "isolation", "note", "serializable")
	state(t, found, "synchronous_commit", "note", "off")
	state(t, found, "timeouts", "ok", "statement_timeout 1s")
	text := w.run("doctor", "--color", "always").want(0).stdout()
	if !strings.Contains(text, "\x1b[32mok     \x1b[0m  version: PostgreSQL ") || !strings.Contains(text, "\n         fix: nothing, or ALTER ROLE") {
		t.Errorf("doctor: %q", text)
	}
	pgtest.Exec(t, w.dsn, `ALTER DATABASE postgres SET default_transaction_read_only = on`)
	state(t, findings(t, w.run("doctor", "--json").want(2)), "primary", "error", "read-only")
}

func TestDoctorOnTables(t *testing.T) {
	t.Parallel()
	w := emptyWorld(t)
	found := findings(t, w.run("doctor", "--json").want(2))
	state(t, found, "schema", "error", "pgmutex init")
	state(t, found, "fsync", "error", "off")
	if _, there := found["privileges"]; there {
		t.Error("privileges on tables that are not there")
	}
	w.run("init", "--table", "locks.\"my.jobs\"").want(0)
	state(t, findings(t, w.run("doctor", "--json", "--table", "locks.\"my.jobs\"")), "schema", "ok", `locks."my.jobs" has version 1`)
	w.run("init").want(0)
	for _, c := range []struct{ break_, name, state, says string }{
		{"ALTER TABLE mutex_lock ALTER COLUMN stop_by TYPE varchar(9)", "schema", "error", "stop_by"},
		{"CREATE INDEX beat ON mutex_lock (last_heartbeat)", "heartbeat index", "error", `DROP INDEX "public"."beat"`},
		{"ALTER TABLE mutex_lock SET (autovacuum_enabled = off)", "autovacuum", "warning", "RESET (autovacuum_enabled)"},
		{"ALTER TABLE mutex_lock DROP CONSTRAINT uq_mutex_lock", "unique index", "error", "(locked, lock_name)"},
		{"UPDATE mutex_lock_meta SET version = 9, oldest = 9", "schema", "error", "newer version"},
	} {
		pgtest.Exec(t, w.dsn, c.break_)
		state(t, findings(t, w.run("doctor", "--json").want(2)), c.name, c.state, c.says)
	}
}

// Each right that is taken away shows with the operations that need it, and
// giving it back is the fix.
func TestDoctorOnPrivileges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	server := pgtest.Shared(t)
	server.Role(t, "app", "secret")
	pgtest.Exec(t, w.dsn, w.run("init", "--print", "--role", "app").want(0).stdout())
	app := *w
	app.dsn = server.PasswordDSN(databaseOf(w.dsn), "app", "secret")
	state(t, findings(t, app.run("doctor", "--json")), "privileges", "ok", "role app may take")
	for _, c := range []struct{ right, operation string }{
		{"INSERT ON mutex_lock", "take"},
		{"UPDATE ON mutex_lock", "renew"},
		{"DELETE ON mutex_lock", "release"},
		{"SELECT ON mutex_lock_waiter", "list"},
		{"INSERT ON mutex_lock_waiter", "wait"},
		{"SELECT ON mutex_lock_event", "history"},
		{"DELETE ON mutex_lock_event", "clean up"},
		{"UPDATE ON mutex_lock_meta", "raise tokens after a failover"},
		{"USAGE ON SEQUENCE mutex_lock_token", "take over"},
	} {
		pgtest.Exec(t, w.dsn, "REVOKE "+c.right+" FROM app")
		found := findings(t, app.run("doctor", "--json").want(2))
		if _, ok := found["privileges"]; ok {
			t.Errorf("without %s all is well", c.right)
		}
		name := "privileges: " + c.operation
		state(t, found, name, "error", "GRANT")
		pgtest.Exec(t, w.dsn, found[name][2])
		if list := findings(t, app.run("doctor", "--json")); list["privileges"][0] != "ok" {
			t.Errorf("%s: %s did not help: %v", c.right, found[name][2], list)
		}
	}
	pgtest.Exec(t, w.dsn, "REVOKE USAGE ON SCHEMA public FROM app, PUBLIC")
	state(t, findings(t, app.run("doctor", "--json").want(2)), "privileges", "error", "GRANT USAGE ON SCHEMA")
}

func TestDoctorBehindPooler(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, mode := range []string{"session", "transaction", "statement"} {
		b := pgtest.NewBouncer(t, pgtest.Shared(t), mode, pgtest.BouncerOptions{})
		far := *w
		far.dsn = b.DSN(w.dsn)
		found := findings(t, far.run("doctor", "--json"))
		state(t, found, "pooler", "note", mode+" mode")
		state(t, found, "listen", "note", "poll")
		state(t, found, "keepalive", "note", "ALTER SYSTEM SET tcp_keepalives_idle") // as the server comes
		state(t, found, "schema", "ok", "version")
	}
}

func TestDoctorOnStandby(t *testing.T) {
	t.Parallel()
	server := pgtest.New(t, pgtest.Options{})
	w := &world{t: t, dsn: server.DSN("postgres", pgtest.Superuser), dir: t.TempDir()}
	w.run("init").want(0)
	w.dsn = server.Standby(t, "copy").DSN("postgres", pgtest.Superuser)
	found := findings(t, w.run("doctor", "--json").want(2))
	state(t, found, "primary", "error", "target_session_attrs")
	state(t, found, "listen", "note", "standby")
}

func TestDoctorOnLongTransactions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	state(t, findings(t, w.run("doctor", "--json")), "long transactions", "ok", "none")
	conn := pgtest.Conn(t, w.dsn)
	pgtest.Exec(t, conn, "BEGIN ISOLATION LEVEL REPEATABLE READ")
	pgtest.One[int64](t, conn, "SELECT count(*) FROM mutex_lock")
	// Too young to be worth a word.
	state(t, findings(t, w.run("doctor", "--json")), "long transactions", "ok", "none")
}

func TestDoctorCannotReachStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	proxy := faultconn.New(t, pgtest.Shared(t).Addr())
	proxy.Refuse(true)
	w.dsn = proxy.DSN(w.dsn)
	if p := w.run("doctor").want(69); p.stdout() != "" {
		t.Errorf("findings without a server: %q", p.stdout())
	}
}

func TestDoctorOnLocalStore(t *testing.T) {
	t.Parallel()
	w := &world{t: t, dir: t.TempDir()}
	file := "--local=" + w.file("locks.db")
	found := findings(t, w.run("doctor", "--json", file).want(0).silent())
	state(t, found, "file", "note", "does not exist yet")
	if _, err := os.Stat(w.file("locks.db")); err == nil {
		t.Error("doctor made the file")
	}
	w.run("run", file, "n", "true").want(0)
	found = findings(t, w.run("doctor", "--json", file).want(0).silent())
	state(t, found, "file", "ok", "mode 0600")
	state(t, found, "store", "ok", "can be used")
	for _, name := range []string{"file system", "boot"} {
		if !slices.Contains([]string{"ok", "note"}, found[name][0]) {
			t.Errorf("%s: %q", name, found[name])
		}
	}
	pgtest.Must(t, os.Chmod(w.file("locks.db"), 0o666))
	state(t, findings(t, w.run("doctor", "--json", file).want(1)), "file", "warning", "chmod 0644")
	pgtest.Must(t, os.WriteFile(w.file("text"), []byte(strings.Repeat("no database ", 100)), 0o600))
	state(t, findings(t, w.run("doctor", "--json", "--local="+w.file("text")).want(2)), "store", "error", "")
	state(t, findings(t, w.run("doctor", "--json", "--local="+w.dir).want(2)), "file", "error", "not a regular file")
}
