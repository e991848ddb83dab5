package main_test

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// object decodes the only line of standard output.
func object(t *testing.T, p *process) map[string]any {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal([]byte(p.stdout()), &o); err != nil || strings.Count(p.stdout(), "\n") != 1 {
		t.Fatalf("%q is not one object on one line: %v", p.stdout(), err)
	}
	return o
}

func TestListAndShow(t *testing.T) {
	w := newWorld(t)
	if p := w.run("list").want(0).silent(); p.stdout() != "" {
		t.Errorf("an empty list is %q", p.stdout())
	}
	o := object(t, w.run("show", "n", "--json").want(0).silent())
	if o["state"] != "free" || o["holder"] != nil {
		t.Errorf("a free lock is %v", o)
	}
	_, end := w.hold("n", "--holder", "me", "--stale", "1m")
	for _, o := range []map[string]any{
		object(t, w.run("list", "--json").want(0).silent()),
		object(t, w.run("show", "n", "--json").want(0).silent()),
	} {
		if o["name"] != "n" || o["state"] != "held" || o["holder"] != "me" || o["engine"] != "lease" || o["stale_after"] != 60.0 {
			t.Errorf("the lock is %v", o)
		}
		if _, ok := o["id"].(string); !ok {
			t.Errorf("the id is a %T", o["id"])
		}
		if _, err := time.Parse(time.RFC3339, o["since"].(string)); err != nil {
			t.Error(err)
		}
		if age, ok := o["heartbeat_age"].(float64); !ok || age < 0 || age > 60 {
			t.Errorf("the heartbeat's age is %v", o["heartbeat_age"])
		}
		if details := o["details"].(map[string]any); details["program"] != "sh" || details["pid"] == "" || details["host"] == "" {
			t.Errorf("details: %v", details)
		}
	}
	text := w.run("list", "--color", "always").want(0).stdout()
	if !strings.HasPrefix(text, "NAME  STATE  HOLDER") || !strings.Contains(text, "\x1b[32mheld\x1b[0m") {
		t.Errorf("list: %q", text)
	}
	if text := w.run("list").want(0).stdout(); strings.Contains(text, "\x1b") {
		t.Errorf("colours without a terminal: %q", text)
	}
	if text := w.run("show", "n").want(0).stdout(); !strings.Contains(text, "me~") || !strings.Contains(text, "without a heartbeat") {
		t.Errorf("show: %q", text)
	}
	end()
	p := w.run("history", "n", "--json").want(0).silent()
	o = object(t, p)
	if o["end"] != "released" || o["holder"] != "me" || o["held"].(float64) <= 0 {
		t.Errorf("history: %v", o)
	}
	if text := w.run("history").want(0).stdout(); !strings.Contains(text, "released") {
		t.Errorf("history: %q", text)
	}
	w.run("run", "m", "true").want(0)
	if text := w.run("history", "--limit", "1", "--json").want(0).stdout(); strings.Count(text, "\n") != 1 || !strings.Contains(text, `"m"`) {
		t.Errorf("history: %q", text)
	}
}

// A name is one line and runs no terminal's code, wherever it comes from.
func TestOutputIsEscaped(t *testing.T) {
	w := newWorld(t)
	pgtest.Exec(t, w.dsn, `INSERT INTO public.mutex_lock (lock_name, instance_id, last_heartbeat, acquired_at)
		VALUES (E'evil\x1b[2J\nname', E'hold\u009b5merer\u202e', now(), now()), ('two words', 'a"b', now(), now())`)
	for _, args := range [][]string{
		{"list"}, {"list", "--json"}, {"list", "--color", "always"},
	} {
		text := w.run(args...).want(0).stdout()
		for _, bad := range []string{"\x1b[2J", "\u009b", "\u202e", "\nname"} {
			if strings.Contains(text, bad) {
				t.Errorf("%q lets %q through: %q", args, bad, text)
			}
		}
	}
	lines := strings.Split(w.run("list").stdout(), "\n")
	if len(lines) != 4 {
		t.Errorf("%d lines: %q", len(lines), lines)
	}
	if !strings.Contains(strings.Join(lines, "\n"), `"two words"`) {
		t.Errorf("a name with a space is not quoted: %q", lines)
	}
	var names []string
	for line := range strings.Lines(w.run("list", "--json").stdout()) {
		var o struct{ Name, Holder string }
		pgtest.Must(t, json.Unmarshal([]byte(line), &o))
		names = append(names, o.Name)
	}
	if len(names) != 2 || names[0] != "evil\x1b[2J\nname" {
		t.Errorf("the names in JSON are %q", names)
	}
}

func TestRelease(t *testing.T) {
	w := newWorld(t)
	w.run("release", "nosuch", "--force").want(1).says("nobody holds")
	if o := object(t, w.run("release", "nosuch", "--force", "--json").want(1)); o["result"] != "not held" {
		t.Errorf("released: %v", o)
	}
	p, _ := w.hold("n", "--stale", "6s", "--holder", "victim")
	w.run("release", "n ", "--force").want(1)
	if o := object(t, w.run("release", "n", "--force", "--json", "--reason", "two words").want(0).silent()); o["result"] != "asked" || o["holder"] != "victim" {
		t.Errorf("released: %v", o)
	}
	p.want(76).says("released by operator")
	w.free("n")
	w.run("release", "n", "--force").want(1)
	if text := w.run("history", "n").want(0).stdout(); !strings.Contains(text, "forced") || !strings.Contains(text, `"two words"`) {
		t.Errorf("history: %q", text)
	}
}

func TestInit(t *testing.T) {
	w := emptyWorld(t)
	w.run("init", "--table", "locks.mine").want(0)
	w.run("init", "--table", "locks.mine").want(0)
	w.run("run", "--table", "locks.mine", "n", "true").want(0).silent()
	w.run("list").want(78).says("pgmutex init")

	// Printing needs no store.
	nowhere := &world{t: t, dir: t.TempDir()}
	p := nowhere.run("init", "--print", "--role", "some one").want(0).silent()
	if !strings.Contains(p.stdout(), `TO "some one"`) {
		t.Errorf("the role is not granted anything: %s", p.stdout())
	}
	pgtest.Exec(t, w.dsn, nowhere.run("init", "--print").want(0).stdout())
	w.run("list").want(0).silent()
}

func TestVersionAndCompletion(t *testing.T) {
	w := &world{t: t, dir: t.TempDir()}
	if text := w.run("version").want(0).silent().stdout(); !strings.HasPrefix(text, "pgmutex ") {
		t.Errorf("version: %q", text)
	}
	if o := object(t, w.run("version", "--json").want(0)); o["version"] == "" || o["go"] == "" {
		t.Errorf("version: %v", o)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if text := w.run("completion", shell).want(0).stdout(); !strings.Contains(text, "pgmutex") {
			t.Errorf("completion for %s: %q", shell, text)
		}
	}
	for _, args := range [][]string{{}, {"--help"}, {"help", "run"}, {"run", "--help"}} {
		if text := w.run(args...).want(0).silent().stdout(); !strings.Contains(text, "Usage:") {
			t.Errorf("%q: %q", args, text)
		}
	}
}

// The environment chooses the store as libpq's programs do.
func TestStoreFromEnvironment(t *testing.T) {
	w := newWorld(t)
	server := pgtest.Shared(t)
	p := w.startWith(func(c *exec.Cmd) {
		c.Env = append(c.Env, "PGMUTEX_URL=", "PGHOSTADDR="+server.Host(), "PGPORT="+portOf(server.Addr()),
			"PGDATABASE="+databaseOf(w.dsn), "PGUSER="+pgtest.Superuser, "PGSSLMODE=disable")
	}, "run", "n", "true")
	p.want(0).silent()
	if text := w.run("history", "n").want(0).stdout(); !strings.Contains(text, "released") {
		t.Errorf("the run was in another store: %q", text)
	}
}

func portOf(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }

// The local store needs no set-up and no server.
func TestLocalStore(t *testing.T) {
	w := &world{t: t, dir: t.TempDir()}
	file := "--local=" + w.file("locks.db")
	w.run("init", file).want(0)
	p := w.start("run", file, "--stale", "6s", "n", "--", "sh", "-c", worker)
	sh, child := w.pid("sh"), w.pid("child")
	w.run("run", file, "-n", "n", "true").want(75).says("is held by")
	o := object(t, w.run("show", file, "--json", "n").want(0).silent())
	if o["state"] != "held" || o["engine"] != "local" {
		t.Errorf("the lock is %v", o)
	}
	w.run("release", file, "--force", "n").want(0)
	p.want(76).says("released by operator")
	gone(t, sh, child)
	by := func(c *exec.Cmd) { c.Env = append(c.Env, "PGMUTEX_URL=local:"+w.file("locks.db")) }
	w.startWith(by, "run", "-n", "n", "true").want(0).silent()
	if text := w.startWith(by, "history", "n").want(0).stdout(); strings.Count(text, "\n") != 3 {
		t.Errorf("history: %q", text)
	}
	w.startWith(by, "run", "--engine", "lease", "n", "true").want(64).says("--engine")
	w.run("run", "--local="+w.file("no/such/dir"), "n", "true").want(69).says("no/such/dir")
}
