package main_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/internal/faultconn"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// A holder whose heartbeats arrive and whose answers do not ends its command by
// the time of the last answer, before the next one may begin.
func TestHolderWithoutAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	proxy := faultconn.New(t, pgtest.Shared(t).Addr())
	far := *w
	far.dsn = proxy.DSN(w.dsn)
	p := far.start("run", "--stale", "4s", "n", "--", "sh", "-c", stubborn)
	sh, child := w.pid("sh"), w.pid("child")
	proxy.HoldReplies()
	w.run("run", "--wait", "40s", "n", "--", "sh", "-c",
		`for p in $(cat sh child); do kill -0 $p 2>/dev/null && ! grep -q '^State:.Z' /proc/$p/status 2>/dev/null && exit 9; done; exit 0`).want(0)
	p.want(76)
	gone(t, sh, child)
}

// A heartbeat that fails, or that a busy row holds up, costs nothing while the
// next one comes in time; a row that is another's ends the hold.
func TestOneFailedHeartbeat(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	beat := "SELECT last_heartbeat FROM mutex_lock WHERE lock_name = 'n'"
	beats := func(what string) {
		t.Helper()
		at := pgtest.One[time.Time](t, w.dsn, "SELECT clock_timestamp()")
		pgtest.WaitFor(t, "a heartbeat after "+what, func() bool { return pgtest.One[time.Time](t, w.dsn, beat).After(at) })
	}
	p, _ := w.hold("n", "--stale", "30s", "--heartbeat", "200ms", "--alert", "5s")
	pgtest.WaitFor(t, "a connection to end", func() bool {
		return pgtest.One[int64](t, w.dsn, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name LIKE 'pgmutex%'`) > 0
	})
	beats("the end of its connection")
	conn := pgtest.Conn(t, w.dsn)
	pgtest.Exec(t, conn, "BEGIN")
	pgtest.Exec(t, conn, "SELECT 1 FROM mutex_lock WHERE lock_name = 'n' FOR UPDATE")
	refused := `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`
	pgtest.WaitFor(t, "a heartbeat to wait for the row", func() bool { return pgtest.One[int64](t, w.dsn, refused) > 0 })
	pgtest.Exec(t, conn, "COMMIT")
	beats("the busy row")
	select {
	case <-p.done:
		t.Fatal("the hold has ended")
	default:
	}
	pgtest.Exec(t, w.dsn, "UPDATE mutex_lock SET instance_id = 'other~1', promised_by = NULL WHERE lock_name = 'n'")
	p.want(76).says(`lost "n"`)
}

// A lease lives behind a pooler that gives each transaction another session, and
// with parameters that are no pooler's.
func TestRunBehindPooler(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := pgtest.NewBouncer(t, pgtest.Shared(t), "transaction", pgtest.BouncerOptions{})
	far := *w
	far.dsn = b.DSN(w.dsn)
	p := far.start("run", "--stale", "30s", "--heartbeat", "50ms", "n", "--", "sh", "-c", `while [ ! -e end ]; do sleep 0.02; done`)
	w.awaitHolder("n")
	pgtest.WaitFor(t, "heartbeats", func() bool {
		return pgtest.One[bool](t, w.dsn, "SELECT last_heartbeat > acquired_at + interval '1 s' FROM mutex_lock WHERE lock_name = 'n'")
	})
	w.run("run", "-n", "n", "true").want(75)
	far.run("run", "-n", "n", "true").want(75)
	pgtest.Must(t, os.WriteFile(w.file("end"), nil, 0o600))
	p.want(0).silent()
}

// With heartbeats that take as long as a slow link makes them, nothing is lost
// and nobody else gets in.
func TestSlowLink(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	proxy := faultconn.New(t, pgtest.Shared(t).Addr())
	proxy.Delay(faultconn.Both, 150*time.Millisecond)
	far := *w
	far.dsn = proxy.DSN(w.dsn)
	p := far.start("run", "--stale", "10s", "n", "--", "sh", "-c", `while [ ! -e end ]; do sleep 0.02; done`)
	w.awaitHolder("n")
	pgtest.WaitFor(t, "heartbeats", func() bool {
		return pgtest.One[bool](t, w.dsn, "SELECT last_heartbeat > acquired_at + interval '3 s' FROM mutex_lock WHERE lock_name = 'n'")
	})
	w.run("run", "-n", "-q", "n", "true").want(75)
	pgtest.Must(t, os.WriteFile(w.file("end"), nil, 0o600))
	p.want(0)
}

// Two sessions with different search paths mean the same lock.
func TestSearchPath(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	far := *w
	far.dsn = pgtest.With(w.dsn, "search_path", "nowhere")
	_, end := w.hold("n", "--holder", "me")
	far.run("run", "-n", "n", "true").want(75).says("me")
	if o := object(t, far.run("show", "n", "--json").want(0)); o["holder"] != "me" {
		t.Errorf("show: %v", o)
	}
	end()
	far.run("run", "-n", "n", "true").want(0).silent()
	if n := pgtest.One[int64](t, w.dsn, "SELECT count(*) FROM pg_class WHERE relname = 'mutex_lock'"); n != 1 {
		t.Errorf("%d lock tables", n)
	}
}

// Of two forced releases of one hold at once, one ends it and both say what is so.
func TestReleaseTwiceAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, _ := w.hold("n", "--stale", "6s")
	first, second := w.start("release", "n", "--force", "--now", "--json"), w.start("release", "n", "--force", "--now", "--json")
	first.wait()
	second.wait()
	p.want(76)
	ended := 0
	for _, r := range []*process{first, second} {
		code, result := r.cmd.ProcessState.ExitCode(), object(t, r)["result"]
		switch {
		case code == 0 && result == "ended":
			ended++
		case code != 1 || result != "not held":
			t.Errorf("exit code %d, result %v: %s", code, result, r.stderr())
		}
	}
	if ended != 1 {
		t.Errorf("%d ended the hold", ended)
	}
}

// A role that may not end another's session is told so, and sees what it may see.
func TestAdvisoryWithoutRights(t *testing.T) {
	t.Parallel()
	w := advisoryWorld(t)
	server := pgtest.Shared(t)
	for _, role := range []string{"rights_holder", "rights_other"} {
		server.Role(t, role, "secret")
	}
	holder, other := *w, *w
	holder.dsn = server.PasswordDSN(databaseOf(w.dsn), "rights_holder", "secret")
	other.dsn = server.PasswordDSN(databaseOf(w.dsn), "rights_other", "secret")
	p := holder.start("run", adv, "n", "--", "sh", "-c", `echo up >up; while [ ! -e end ]; do sleep 0.02; done`)
	w.await("up")
	text := other.run("list", adv).want(0).silent().stdout()
	if !strings.Contains(text, "held") {
		t.Errorf("list: %q", text)
	}
	if o := object(t, other.run("show", adv, "n", "--json").want(0)); o["state"] != "held" {
		t.Errorf("show: %v", o)
	}
	other.run("release", adv, "n", "--force", "--now").want(77)
	if w.sessions() != 1 {
		t.Error("the lock has gone")
	}
	pgtest.Must(t, os.WriteFile(w.file("end"), nil, 0o600))
	p.want(0).silent()
	// A session of another program that has just ended is nobody's.
	conn := pgtest.Conn(t, w.dsn)
	pgtest.One[bool](t, conn, "SELECT pg_try_advisory_lock($1)", pgmutex.AdvisoryID("m"))
	pgtest.Must(t, conn.Close(t.Context()))
	pgtest.WaitFor(t, "the session to end", func() bool { return w.sessions() == 0 })
	other.run("release", adv, "m", "--force", "--now").want(1).says("nobody holds")
}
