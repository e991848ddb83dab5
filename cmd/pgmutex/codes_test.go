package main_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/pgmutex/pgmutex/internal/faultconn"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// The exit code is the command's own, or what shells make of its end, and the
// lock is free again at once.
func TestExitCodeOfTheCommand(t *testing.T) {
	w := newWorld(t)
	plain := w.file("plain")
	pgtest.Must(t, os.WriteFile(plain, []byte("data"), 0o600))
	script := w.file("script")
	pgtest.Must(t, os.WriteFile(script, []byte("echo no first line\n"), 0o700))
	for _, c := range []struct {
		name    string
		command []string
		code    int
	}{
		{"success", []string{"true"}, 0},
		{"failure", []string{"sh", "-c", "exit 3"}, 3},
		{"failure with the code for busy", []string{"sh", "-c", "exit 75"}, 75},
		{"terminated", []string{"sh", "-c", "kill -TERM $$"}, 143},
		{"killed", []string{"sh", "-c", "kill -9 $$"}, 137},
		{"no such command", []string{"no-such-command"}, 127},
		{"no such file", []string{"./no-such-file"}, 127},
		{"not executable", []string{plain}, 126},
		{"a directory", []string{w.dir}, 126},
		{"a script without a first line", []string{script}, 126},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.run(append([]string{"run", "n", "--"}, c.command...)...).want(c.code)
			w.isFree("n")
		})
	}
}

// Wrong usage ends with 64, names what is wrong, and connects to nothing.
func TestUsage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	proxy := faultconn.New(t, pgtest.Shared(t).Addr())
	w.dsn = proxy.DSN(w.dsn)
	for _, c := range []struct {
		args string
		says string
	}{
		{"run", "LOCK"},
		{"run n", "COMMAND is missing"},
		{"run n --", "COMMAND is missing"},
		{"run -- cat", "COMMAND is missing"},
		{"run n -w 5 -- true", "flags go before the lock name"},
		{"run -w job -- true", "--wait"},
		{"run -w -5s n true", "--wait"},
		{"run -n -w 5 n true", "--no-wait and --wait"},
		{"run --stale 0 n true", "--stale"},
		{"run --stale -1s n true", "--stale"},
		{"run --stale 2ns n true", "--stale"},
		{"run --stale 9000000h n true", "--stale"},
		{"run --stale 200h n true", "--stale"},
		{"run --stale 0.9 n true", "--stale"},
		{"run --stale NaN n true", "--stale"},
		{"run --heartbeat 0 n true", "--heartbeat"},
		{"run --heartbeat 1us n true", "--heartbeat"},
		{"run --stale 5s --heartbeat 5s n true", "--heartbeat"},
		{"run --stale 5s --heartbeat 6s n true", "--heartbeat"},
		{"run --alert 0 n true", "--alert"},
		{"run --alert 1h n true", "--alert"},
		{"run --kill-after 0 n true", "--kill-after"},
		{"run -E 256 n true", "--conflict-exit-code"},
		{"run -E x n true", "--conflict-exit-code"},
		{"run --lost-exit-code -1 n true", "--lost-exit-code"},
		{"run --holder " + strings.Repeat("x", 48) + " n true", "--holder"},
		{"run --namespace a/b n true", "--namespace"},
		{"run --table a.b.c n true", "--table"},
		{"run --engine nosuch n true", "--engine"},
		{"run --nosuch n true", "--nosuch"},
		{"run " + strings.Repeat("x", 65) + " true", "at most 64"},
		{"run --local --url x n true", "--local and --url"},
		{"run --local --engine lease n true", "--local and --engine"},
		{"list extra", "list"},
		{"list --color blue", "--color"},
		{"show", "LOCK"},
		{"show a b", "LOCK"},
		{"history --limit -1", "\"--limit\" flag: must not be negative"},
		{"history --limit x", "\"--limit\" flag: must be a whole number, such as 10, or 0 for all (see"},
		{"release n", "--force"},
		{"init --role r", "--role"},
		{"nosuch", "nosuch"},
	} {
		t.Run(c.args, func(t *testing.T) {
			w.run(strings.Fields(c.args)...).want(64).says(c.says)
		})
	}
	w.run("run", "", "true").want(64).says("LOCK")
	w.run("run", "a\nb", "true").want(64).says("LOCK")
	if got := len(proxy.Conns()); got > 0 {
		t.Errorf("%d connections were made", got)
	}
}

// A busy lock, a command that fails, and a store that cannot be reached are told
// apart; quiet means silent.
func TestBusyIsNotFailure(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, end := w.hold("n", "--holder", "the holder")
	w.run("run", "-n", "n", "true").want(75).says("the holder", "stale in")
	w.run("run", "--wait", "0", "n", "true").want(75).says("the holder")
	w.run("run", "--wait", "0.5", "n", "true").want(75).says("the holder", "gave up after 500ms", "waiting for")
	w.run("run", "-q", "-n", "n", "true").want(75).silent()
	w.run("run", "-q", "-w", "0.3s", "n", "true").want(75).silent()
	w.run("run", "-q", "-n", "-E", "0", "n", "true").want(0).silent()
	w.run("run", "-n", "-E", "9", "n", "true").want(9)
	end()
	w.run("run", "-n", "n", "false").want(1).silent()

	down := *w
	proxy := faultconn.New(t, pgtest.Shared(t).Addr())
	proxy.Refuse(true)
	down.dsn = proxy.DSN(w.dsn)
	down.run("run", "-n", "n", "true").want(69)
	down.run("run", "-w", "1s", "n", "true").want(69)
	down.run("list").want(69)

	wrong := *w
	pgtest.Shared(t).Role(t, "wrongpassword", "right")
	wrong.dsn = pgtest.Shared(t).PasswordDSN("postgres", "wrongpassword", "Xwrong1X")
	if p := wrong.run("run", "-n", "n", "true").want(69); strings.Contains(p.stderr(), "Xwrong1X") {
		t.Error("the password is shown")
	}
}

// Whatever is wrong with a connection string, no part of a password is shown.
func TestPasswordsAreNotShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, dsn := range []string{
		"postgres://u:Xsec@Xret@nohost.invalid/db",
		"postgres://u:Xsec#Xret@nohost.invalid/db",
		"postgres://u:8Xsec%Xret@nohost.invalid/db",
		"postgres://u:Xsec/Xret@nohost.invalid/db",
		"postgres://u:Xsec?Xret@nohost.invalid/db",
		"postgres://u:Xsec Xret@nohost.invalid/db",
		"postgres://u:Xsec%40Xret@nohost.invalid/db",
		"postgresqsl://u:Xsec-Xret@h/db",
		"host=nohost.invalid user=u password=Xsec Xret",
		"host=nohost.invalid user=u password='Xsec Xret",
		"host=127.0.0.1 port=1 user=u password='Xsec Xret'",
		"postgres://127.0.0.1:1/db?user=u&password=Xsec-Xret",
	} {
		t.Run(dsn, func(t *testing.T) {
			for _, p := range []*process{
				w.run("run", "--url", dsn, "n", "true"),
				w.run("list", "--url", dsn),
				w.run("init", "--url="+dsn),
				w.run(dsn),
				w.run("run", dsn, "true"),
				w.run("show", dsn),
				w.startWith(func(c *exec.Cmd) { c.Env = append(c.Env, "PGMUTEX_URL="+dsn) }, "run", "n", "true").wait(),
			} {
				text := p.stdout() + p.stderr()
				if strings.Contains(text, "Xsec") || strings.Contains(text, "Xret") {
					t.Errorf("%q shows a part of the password: %s", p.cmd.Args[1:], text)
				}
				if code := p.cmd.ProcessState.ExitCode(); code != 64 && code != 69 && code != 78 {
					t.Errorf("%q: exit code %d", p.cmd.Args[1:], code)
				}
			}
		})
	}
	p := w.run("run", "--url", pgtest.With(pgtest.Shared(t).PasswordDSN("postgres", "postgres", "Xsecret")), "-n", "x", "true")
	p.says("password in --url")
	if strings.Contains(p.stderr(), "Xsecret") {
		t.Error("the password is shown")
	}
}

// Without a store nothing is locked, and both ways to choose one are named.
func TestNoStoreChosen(t *testing.T) {
	w := &world{t: t, dir: t.TempDir()}
	w.startWith(func(c *exec.Cmd) { c.Env = append(c.Env, "PGUSER=somebody", "PGPASSFILE=/nowhere") }, "run", "n", "touch", "ran").
		want(78).says("--url", "--local")
	if _, err := os.Stat(w.file("ran")); err == nil {
		t.Error("the command ran")
	}
}

// When the store has gone away during a wait, the end of the wait says so.
func TestStoreGoneWhileWaiting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, end := w.hold("n")
	proxy := faultconn.New(t, pgtest.Shared(t).Addr())
	far := *w
	far.dsn = proxy.DSN(w.dsn)
	p := far.start("run", "--wait", "12s", "n", "true")
	pgtest.WaitFor(t, "the run to wait", func() bool { return strings.Contains(p.stderr(), "waiting for") })
	proxy.Refuse(true)
	proxy.Cut()
	p.want(69).says("gone away")
	end()
}
