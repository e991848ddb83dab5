package main_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// advisoryWorld is a database without any tables of ours.
func advisoryWorld(t *testing.T) *world {
	t.Helper()
	return emptyWorld(t)
}

const adv = "--engine=advisory"

// sessions returns how many advisory locks of names there are.
func (w *world) sessions() int64 {
	w.t.Helper()
	return pgtest.One[int64](w.t, w.dsn, `SELECT count(*) FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database
		WHERE l.locktype = 'advisory' AND l.granted AND d.datname = current_database() AND l.objsubid = 1`)
}

func (w *world) noTables() {
	w.t.Helper()
	if n := pgtest.One[int64](w.t, w.dsn, "SELECT count(*) FROM pg_class WHERE relname LIKE 'mutex%'"); n != 0 {
		w.t.Errorf("%d relations were made", n)
	}
}

func TestAdvisoryRun(t *testing.T) {
	t.Parallel()
	w := advisoryWorld(t)
	w.run("run", adv, "n", "--", "sh", "-c", `[ "$PGMUTEX_LOCK" = n ] && [ -z "$PGMUTEX_TOKEN" ]`).want(0).silent()
	w.run("run", adv, "n", "--", "sh", "-c", "exit 3").want(3)
	p := w.start("run", adv, "--holder", "first", "n", "--", "sh", "-c", `echo up >up; while [ ! -e end ]; do sleep 0.02; done`)
	w.await("up")
	w.run("run", adv, "-n", "n", "true").want(75).says("first", "server process")
	w.run("run", adv, "-w", "0.3", "n", "true").want(75).says("first", "gave up")
	next := w.start("run", adv, "n", "touch", "next")
	pgtest.WaitFor(t, "the wait to be told", func() bool { return strings.Contains(next.stderr(), "waiting for") })
	o := object(t, w.run("list", adv, "--json").want(0).silent())
	if o["engine"] != "advisory" || o["state"] != "held" || o["holder"] != "first" || o["heartbeat_age"] != nil {
		t.Errorf("list: %v", o)
	}
	o = object(t, w.run("show", adv, "n", "--json").want(0).silent())
	if o["name"] != "n" || o["waiters"] != 1.0 {
		t.Errorf("show: %v", o)
	}
	if text := w.run("list", adv).want(0).stdout(); !strings.Contains(text, "id:") || !strings.Contains(text, "first") {
		t.Errorf("list: %q", text)
	}
	w.run("show", adv, "n").want(0).silent()
	for _, args := range [][]string{{"history", adv}, {"history", adv, "n", "--json"}} {
		p := w.run(args...).want(69).says("the advisory engine keeps no history", "pgmutex show", "--engine lease")
		if p.stdout() != "" || strings.Contains(p.stderr(), "unsupported") {
			t.Errorf("history: %q, %q", p.stdout(), p.stderr())
		}
	}
	pgtest.Must(t, exec.Command("touch", w.file("end")).Run())
	p.want(0).silent()
	next.want(0)
	w.run("init", adv).want(0).says("no set-up")
	w.noTables()
	if n := w.sessions(); n != 0 {
		t.Errorf("%d advisory locks are left", n)
	}
}

// The session's lease is what --stale says, within the engine's bounds.
func TestAdvisoryStale(t *testing.T) {
	t.Parallel()
	w := advisoryWorld(t)
	w.run("run", adv, "--stale", "1s", "n", "true").want(64).says("--stale")
	p := w.start("run", adv, "--stale", "7s", "n", "--", "sh", "-c", `echo up >up; sleep 300`)
	w.await("up")
	pgtest.WaitFor(t, "a session that holds the lock", func() bool { return w.sessions() == 1 })
	w.run("release", adv, "n", "--force", "--now").want(0).says("ended the hold")
	p.want(76).says(`lost "n"`)
	w.run("release", adv, "n", "--force", "--now").want(1).says("nobody holds")
	w.noTables()
}

func TestAdvisoryNested(t *testing.T) {
	t.Parallel()
	w := advisoryWorld(t)
	w.run("run", adv, "n", "--", program, "run", adv, "n", "true").want(75).says("runs under")
	w.run("run", adv, "n", "--", program, "run", adv, "m", "--", program, "run", adv, "n", "true").want(75).says("runs under")
	w.run("run", adv, "n", "--", program, "run", adv, "m", "true").want(0).silent()
}

// Case 1: behind a transaction pooler everybody would get the lock.
func TestAdvisoryBehindPooler(t *testing.T) {
	t.Parallel()
	w := advisoryWorld(t)
	for _, mode := range []string{"transaction", "session"} {
		b := pgtest.NewBouncer(t, pgtest.Shared(t), mode, pgtest.BouncerOptions{})
		far := *w
		far.dsn = b.DSN(w.dsn)
		far.run("run", adv, "n", "touch", "ran").want(69).says("pooler")
		state(t, findings(t, far.run("doctor", adv, "--json").want(2)), "pooler", "error", "--engine lease")
	}
	if w.read("ran") != "" {
		t.Error("the command ran")
	}
	found := findings(t, w.run("doctor", adv, "--json"))
	state(t, found, "pooler", "ok", "none")
	if _, ok := found["schema"]; ok {
		t.Error("the schema was looked at")
	}
	w.noTables()
}

// With a table there are tokens.
func TestAdvisoryTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.run("run", adv, "--table", "mutex_lock", "n", "--", "sh", "-c", `echo "$PGMUTEX_TOKEN"`).want(0).silent()
	if p.stdout() != "1\n" {
		t.Errorf("the token is %q", p.stdout())
	}
}

// The holder of an advisory lock is asked for that one key; a session of another
// program cannot be.
func TestAdvisoryReleaseAsks(t *testing.T) {
	t.Parallel()
	w := advisoryWorld(t)
	p := w.start("run", adv, "n", "--", "sh", "-c", `trap "echo told >told; while [ ! -e end ]; do sleep 0.02; done; exit 0" TERM; echo up >up; while :; do sleep 0.02; done`)
	w.await("up")
	w.run("release", adv, "n", "--force", "--reason", "rest").want(0).says(`to stop: it is told within one heartbeat`, "--reason is told to nobody")
	w.await("told")
	w.run("run", adv, "-n", "n", "true").want(75)
	if o := object(t, w.run("show", adv, "n", "--json").want(0)); o["stop_asked"] != true {
		t.Errorf("show: %v", o)
	}
	pgtest.Must(t, exec.Command("touch", w.file("end")).Run())
	p.want(76).says(`lost "n": released by operator`)
	w.run("run", adv, "-n", "n", "true").want(0).silent()

	conn := pgtest.Conn(t, w.dsn)
	pgtest.One[bool](t, conn, "SELECT pg_try_advisory_lock($1)", pgmutex.AdvisoryID("n"))
	w.run("release", adv, "n", "--force").want(69).says("does not hear", "--now")
	w.noTables()
}

// Ending a session ends all that it holds, which is said before.
func TestAdvisoryReleaseNamesOthers(t *testing.T) {
	t.Parallel()
	w := advisoryWorld(t)
	conn := pgtest.Conn(t, w.dsn)
	pgtest.Exec(t, conn, "SET application_name = 'stranger'")
	pgtest.One[bool](t, conn, "SELECT pg_try_advisory_lock($1)", pgmutex.AdvisoryID("n"))
	pgtest.One[bool](t, conn, "SELECT pg_try_advisory_lock(12345)")
	w.run("release", adv, "n", "--force", "--now").want(0).says("stranger", "which also holds id:12345")
	if n := w.sessions(); n != 0 {
		t.Errorf("%d advisory locks are left", n)
	}
}
