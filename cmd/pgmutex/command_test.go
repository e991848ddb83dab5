package main_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// Every argument reaches the command as it is.
func TestArgumentsAreExact(t *testing.T) {
	w := newWorld(t)
	words := []string{"my file", "", "*", "$HOME", "-v", "--name", "x", "--", "\n", "é\xff", "--help"}
	want := ""
	for _, word := range words {
		want += "[" + word + "]"
	}
	for _, before := range [][]string{
		{"run", "n", "--", "printf", "[%s]"},
		{"run", "n", "printf", "[%s]"},
		{"run", "-w", "5", "--", "n", "printf", "[%s]"},
		{"run", "--", "n", "--", "printf", "[%s]"},
	} {
		p := w.run(append(before, words...)...).want(0).silent()
		if got := p.stdout(); got != want {
			t.Errorf("%q: got %q, want %q", before, got, want)
		}
	}
	if p := w.run("run", "-n", "n", "sh", "-c", `echo "$0 $#"`, "a b", "c").want(0); p.stdout() != "a b 1\n" {
		t.Errorf("got %q", p.stdout())
	}
	// A lock whose name looks like a flag, and a command that does.
	dash := w.file("-dash")
	pgtest.Must(t, os.WriteFile(dash, []byte("#!/bin/sh\necho dash \"$@\"\n"), 0o700))
	p := w.startWith(func(c *exec.Cmd) { c.Env = append(c.Env, "PATH="+w.dir+":"+os.Getenv("PATH")) },
		"run", "--", "-n", "--", "-dash", "-x").want(0)
	if p.stdout() != "dash -x\n" {
		t.Errorf("got %q", p.stdout())
	}
}

// The standard streams are the command's own: the same files, byte for byte.
func TestStreamsPassThrough(t *testing.T) {
	w := newWorld(t)
	data := make([]byte, 1<<20)
	_, _ = rand.Read(data)
	p := w.startWith(func(c *exec.Cmd) { c.Stdin = bytes.NewReader(data) },
		"run", "n", "--", "sh", "-c", "cat; echo oops >&2").want(0)
	if got := p.stdout(); got != string(data) {
		t.Errorf("%d bytes came back changed", len(data))
	}
	if p.stderr() != "oops\n" {
		t.Errorf("stderr is %q", p.stderr())
	}

	out := w.file("target")
	f, err := os.Create(out)
	pgtest.Must(t, err)
	defer f.Close()
	w.startWith(func(c *exec.Cmd) { c.Stdout = f }, "run", "n", "--", "sh", "-c", `[ /dev/stdout -ef "$0" ]`, out).want(0)
}

// A process that the command leaves behind with its streams open is not waited
// for.
func TestLeftoverIsNotWaitedFor(t *testing.T) {
	w := newWorld(t)
	p := w.run("run", "n", "--", "sh", "-c", "sleep 300 & echo $! >left").want(0)
	pid := w.pid("left")
	if p.took > patience/2 {
		t.Errorf("took %v", p.took)
	}
	w.isFree("n")
	child, err := os.FindProcess(pid)
	pgtest.Must(t, err)
	pgtest.Must(t, child.Kill())
}

// The environment of the command names the hold, and a run inside of another
// one replaces it.
func TestEnvironment(t *testing.T) {
	w := newWorld(t)
	p := w.startWith(func(c *exec.Cmd) { c.Env = append(c.Env, "PGMUTEX_TOKEN=stale", "KEPT=a=b") },
		"run", "--holder", "me", "--namespace", "team", "n", "--", "sh", "-c",
		`echo "$PGMUTEX_LOCK|$PGMUTEX_HOLDER|$PGMUTEX_TOKEN|$PGMUTEX_TERM|$KEPT"; env | grep -c ^PGMUTEX_TOKEN=; `+
			`"$0" list --json --url "$PGMUTEX_URL"`, program).want(0)
	lines := strings.Split(p.stdout(), "\n")
	parts := strings.Split(lines[0], "|")
	if len(parts) != 5 || parts[0] != "team/n" || parts[1] != "me" || parts[4] != "a=b" {
		t.Fatalf("environment: %q", lines[0])
	}
	if !strings.HasPrefix(parts[3], "me~") {
		t.Errorf("PGMUTEX_TERM is %q", parts[3])
	}
	if lines[1] != "1" {
		t.Errorf("PGMUTEX_TOKEN is there %s times", lines[1])
	}
	if !strings.Contains(lines[2], `"name":"team/n"`) || !strings.Contains(lines[2], fmt.Sprintf(`"term":%q`, parts[3])) {
		t.Errorf("the store shows %s", lines[2])
	}
	token := pgtest.One[int64](t, w.dsn, "SELECT token FROM public.mutex_lock_event WHERE lock_name = 'team/n'")
	if parts[2] != fmt.Sprint(token) {
		t.Errorf("PGMUTEX_TOKEN is %s, the store has %d", parts[2], token)
	}
}

// The command finds no descriptor of ours.
func TestNoDescriptorLeaks(t *testing.T) {
	w := newWorld(t)
	list := "for f in /dev/fd/*; do echo ${f##*/}; done | sort -n | tr '\\n' ' '"
	bare := exec.Command("sh", "-c", list)
	bare.Stdin = nil
	want, err := bare.Output()
	pgtest.Must(t, err)
	if p := w.run("run", "n", "--", "sh", "-c", list).want(0); p.stdout() != string(want) {
		t.Errorf("descriptors under the lock: %s, without: %s", p.stdout(), want)
	}
}

// Commands of one lock run one after the other, those of different locks beside
// each other.
func TestTakingTurns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const runs = 6
	var ps []*process
	for range runs {
		ps = append(ps, w.start("run", "-q", "n", "--", "sh", "-c",
			`mkdir busy || exit 9; echo "$PGMUTEX_TOKEN" >>tokens; rmdir busy`))
	}
	for _, p := range ps {
		p.want(0)
	}
	tokens := strings.Fields(w.read("tokens"))
	if len(tokens) != runs {
		t.Fatalf("%d of %d ran", len(tokens), runs)
	}
	last := int64(0)
	for _, token := range tokens {
		var n int64
		fmt.Sscan(token, &n)
		if n <= last {
			t.Errorf("tokens do not rise: %s", tokens)
		}
		last = n
	}
	_, end := w.hold("one")
	w.run("run", "-n", "two", "true").want(0)
	w.run("run", "-n", "--namespace", "x", "one", "true").want(0)
	end()
}

// A run inside of another one of the same lock would wait for itself.
func TestNestedRun(t *testing.T) {
	w := newWorld(t)
	w.run("run", "n", "--", program, "run", "n", "true").want(75).says("runs under")
	w.run("run", "n", "--", program, "run", "m", "--", program, "run", "n", "true").want(75).says("runs under")
	w.run("run", "n", "--", program, "run", "-q", "-E", "7", "n", "true").want(7).silent()
	w.run("run", "n", "--", program, "run", "m", "true").want(0).silent()
	w.run("run", "n", "--", program, "run", "--namespace", "x", "n", "true").want(0).silent()
	// The outer run has ended; what it left in the environment means nothing.
	w.startWith(func(c *exec.Cmd) { c.Env = append(c.Env, "PGMUTEX_LOCK=n", "PGMUTEX_TERM=x~y") }, "run", "n", "true").want(0).silent()
}

// First uses create the schema, at once in several processes; without the right
// to, they say what to run.
func TestFirstUse(t *testing.T) {
	t.Parallel()
	w := emptyWorld(t)
	var ps []*process
	for i := range 4 {
		ps = append(ps, w.start("run", "-q", fmt.Sprint("n", i), "true"))
	}
	for _, p := range ps {
		p.want(0).silent()
	}

	server := pgtest.Shared(t)
	poor := emptyWorld(t)
	server.Role(t, "poor", "secret")
	pgtest.Exec(t, poor.dsn, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
	owner := poor.dsn
	poor.dsn = server.PasswordDSN(databaseOf(owner), "poor", "secret")
	poor.run("run", "n", "true").want(78).says("pgmutex init", "as a role")
	poor.run("list").want(78).says("pgmutex init")

	rich := *poor
	rich.dsn = owner
	rich.run("init").want(0)
	poor.run("run", "n", "true").want(77).says("GRANT")
	script := rich.run("init", "--print", "--role", "poor").want(0).silent().stdout()
	pgtest.Exec(t, owner, script)
	poor.run("run", "n", "true").want(0).silent()
	poor.run("list").want(0).silent()
}

func databaseOf(dsn string) string {
	_, rest, _ := strings.Cut(dsn, "://")
	_, name, _ := strings.Cut(rest, "/")
	name, _, _ = strings.Cut(name, "?")
	return name
}
