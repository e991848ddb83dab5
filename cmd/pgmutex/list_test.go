package main_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex/internal/pgtest"
)

func TestListFilters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pgtest.Exec(t, w.dsn, `INSERT INTO mutex_lock (lock_name, instance_id, last_heartbeat, acquired_at) VALUES
		('nightly-a', 'x~1', now(), now()), ('nightly-b', 'x~2', now() - interval '5 min', now()), ('other', 'x~3', now() - interval '1 h', now())`)
	for _, c := range []struct{ args, want string }{
		{"", "nightly-a nightly-b other"},
		{"--state held", "nightly-a"},
		{"--state late,stale", "nightly-b other"},
		{"--state late --state stale", "nightly-b other"},
		{"--match nightly-*", "nightly-a nightly-b"},
		{"--match nightly-[b-z] --state late", "nightly-b"},
		{"--match x*", ""},
	} {
		var names []string
		for line := range strings.Lines(w.run(append([]string{"list", "--json"}, strings.Fields(c.args)...)...).want(0).stdout()) {
			var o struct{ Name string }
			pgtest.Must(t, json.Unmarshal([]byte(line), &o))
			names = append(names, o.Name)
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%s: %s, want %s", c.args, got, c.want)
		}
	}
	for _, args := range []string{"--state lost", "--match [a", "--every 1s", "--every 1ms --watch"} {
		w.run(append([]string{"list"}, strings.Fields(args)...)...).want(64).says(strings.Fields(args)[0])
	}
}

// Ten thousand locks are listed in a moment.
func TestListOfThousands(t *testing.T) {
	w := newWorld(t)
	const n = 10_000
	pgtest.Exec(t, w.dsn, `INSERT INTO mutex_lock (lock_name, instance_id, last_heartbeat, acquired_at, promised_by, stale_after, heartbeat_every, alert_after, details)
		SELECT 'lock-' || i, 'host-' || i || '~x', now(), now(), 'host-' || i || '~x', '10 min', '10 s', '30 s', '{"host": "h", "pid": "1", "program": "p"}'
		FROM generate_series(1, 10000) AS i`)
	for _, args := range [][]string{{"list"}, {"list", "--json"}} {
		p := w.run(args...).want(0).silent()
		if got := strings.Count(p.stdout(), "\n"); got < n || got > n+1 {
			t.Errorf("%q: %d lines", args, got)
		}
		if p.took > 10*time.Second { // it takes a fraction of a second
			t.Errorf("%q took %v", args, p.took)
		}
		t.Logf("%q took %v", args, p.took)
	}
}

// As JSON, what changes is written and nothing else.
func TestWatchAsJSON(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start("list", "--watch", "--every", "100ms", "--json")
	_, end := w.hold("job")
	pgtest.WaitFor(t, "the lock to be shown", func() bool { return strings.Contains(p.stdout(), `"state":"held"`) })
	end()
	pgtest.WaitFor(t, "the end to be shown", func() bool { return strings.Contains(p.stdout(), `"state":"free"`) })
	p.signal(syscall.SIGTERM)
	p.wait().silent()
	if got := strings.Count(p.stdout(), "\n"); got != 2 {
		t.Errorf("%d lines: %s", got, p.stdout())
	}
	q := w.start("list", "--watch", "--every", "100ms")
	pgtest.WaitFor(t, "two looks", func() bool { return strings.Count(q.stdout(), "0 held") > 1 })
	q.signal(syscall.SIGTERM)
	q.wait().silent()
}

// Those who wait are shown in their order.
func TestShowWaitingLine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start("run", "--holder", "first", "ns/n", "sleep", "300")
	w.awaitHolder("ns/n")
	for _, name := range []string{"second", "third"} {
		p := w.start("run", "--namespace", "ns", "--holder", name, "n", "true")
		pgtest.WaitFor(t, name+" to wait", func() bool {
			return pgtest.One[int64](t, w.dsn, "SELECT count(*) FROM mutex_lock_waiter WHERE holder = $1", name) == 1
		})
		pgtest.WaitFor(t, "the wait to be told", func() bool { return strings.Contains(p.stderr(), "waiting for") })
	}
	o := object(t, w.run("show", "--namespace", "ns", "n", "--json").want(0).silent())
	line, _ := o["line"].([]any)
	if len(line) != 2 || o["waiters"] != 2.0 {
		t.Fatalf("show: %v", o)
	}
	for i, name := range []string{"second", "third"} {
		if p := line[i].(map[string]any); p["holder"] != name || p["place"] != float64(i+1) {
			t.Errorf("place %d: %v", i+1, p)
		}
	}
	text := w.run("show", "ns/n").want(0).stdout()
	if !strings.Contains(text, "waiters") || strings.Index(text, "place 1") > strings.Index(text, "place 2") || !strings.Contains(text, "third, seen") {
		t.Errorf("show: %s", text)
	}
}

// The row gets its token with the first heartbeat; until then the text says so, and
// of a holder that draws none it does not.
func TestShowTokenBeforeFirstHeartbeat(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, end := w.hold("n", "--alert", "5m", "--heartbeat", "2m")
	defer end()
	pgtest.Exec(t, w.dsn, "INSERT INTO mutex_lock (lock_name, instance_id, last_heartbeat, acquired_at) VALUES ('theirs', 'x', now(), now())")
	shows := func(lock, want string, inJSON any) {
		t.Helper()
		if text := w.run("show", lock).want(0).silent().stdout(); !strings.Contains(text, "\ntoken      "+want+"\n") {
			t.Errorf("show %s: %q, want the token to be %q", lock, text, want)
		}
		if o := object(t, w.run("show", lock, "--json").want(0).silent()); o["token"] != inJSON {
			t.Errorf("show %s: the token is %v in JSON", lock, o["token"])
		}
	}
	shows("n", "-, not written yet: it comes with the first heartbeat", nil)
	shows("theirs", "-", nil)
	pgtest.Exec(t, w.dsn, "UPDATE mutex_lock SET token = 7 WHERE lock_name = 'n'")
	shows("n", "7", "7")
}

// The shell completes the names of locks that are held, and is not kept waiting
// by a store that is not there.
func TestCompletionOfNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, end := w.hold("nightly")
	defer end()
	for _, c := range []struct{ command, begun, want string }{
		{"show", "", "nightly\n"}, {"release", "ni", "nightly\n"}, {"history", "n", "nightly\n"}, {"run", "ni", "nightly\n"}, {"show", "x", ""},
	} {
		got := w.run("__complete", c.command, c.begun).want(0).stdout()
		if !strings.HasPrefix(got, c.want+":") {
			t.Errorf("%s %s: %q", c.command, c.begun, got)
		}
	}
	// What comes after the lock of a run is a command: the shell completes that.
	if got := w.run("__complete", "run", "n", "l").want(0).stdout(); strings.Contains(got, "nightly") {
		t.Errorf("a command is completed as %q", got)
	}
	nowhere := w.startWith(func(c *exec.Cmd) { c.Env = append(os.Environ(), "PGMUTEX_URL=") }, "__complete", "show", "")
	nowhere.want(0)
}
