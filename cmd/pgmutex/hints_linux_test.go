package main_test

import (
	"os"
	"strings"
	"testing"

	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// What the operator says reaches the holder.
func TestReasonReachesTheHolder(t *testing.T) {
	t.Parallel()
	for name, how := range map[string][]string{"asked": nil, "now": {"--now"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p, _ := w.hold("n", "--stale", "6s")
			r := w.run(append([]string{"release", "n", "--force", "--reason", "moved to\x1b[2J the new host"}, how...)...).want(0)
			if how == nil {
				r.says("told within one heartbeat (")
			}
			p.want(76).says(`lost "n": released by operator`, `who says "moved to\x1b[2J the new host"`)
			if strings.Contains(p.stderr(), "\x1b") {
				t.Error("the reason runs a terminal's code")
			}
		})
	}
	w := &world{t: t, dir: t.TempDir()}
	file := "--local=" + w.file("locks.db")
	p := w.start("run", file, "--stale", "6s", "n", "--", "sh", "-c", "echo up >up; exec sleep 300")
	w.await("up")
	w.run("release", file, "n", "--force", "--now", "--reason", "because").want(0)
	p.want(76).says(`who says "because"`)
}

// A file that was meant for --local is not silently a lock's name.
func TestPathAsLockIsTold(t *testing.T) {
	w := &world{t: t, dir: t.TempDir()}
	state := []string{"HOME=" + w.dir, "XDG_STATE_HOME="}
	for _, args := range [][]string{{"run", "--local", "/x/locks.db", "true"}, {"show", "--local", "./locks.db"}} {
		w.startWith(addEnv(state...), args...).want(0).says("is taken as the name of the lock", "--local=PATH")
	}
	w.startWith(addEnv(state...), "run", "-q", "--local", "/x/locks.db", "true").want(0).silent()
	w.startWith(addEnv(state...), "run", "--local", "x", "true").want(0).silent()
}

// On a terminal an empty list is not nothing at all; for programs it is.
func TestEmptyListOnTerminal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for args, want := range map[string]string{"list": "nothing is held", "list --state stale": "nothing that was asked for is held"} {
		c, cmd := w.newConsole(append([]string{program}, strings.Fields(args)...)...)
		c.shows(want)
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	if p := w.run("list").want(0).silent(); p.stdout() != "" {
		t.Errorf("an empty list is %q", p.stdout())
	}
}

// So is an empty history.
func TestEmptyHistoryOnTerminal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run("run", "m", "true").want(0)
	for args, want := range map[string]string{
		"history": "", "history --json n": "",
		"history n":                       `no hold of "n" has ended, as far back as the store keeps them`,
		"history --local=" + w.file("db"): "no hold has ended, as far back as the store keeps them",
	} {
		words := strings.Fields(args)
		c, _ := w.newConsole(append([]string{"sh", "-c", `"$PGM" "$@"; echo "code=$?"`, "sh"}, words...)...)
		c.shows("code=0")
		if text := c.text(); want != "" && !strings.HasPrefix(text, "pgmutex: "+want+"\r\n") || want == "" && strings.Contains(text, "pgmutex:") {
			t.Errorf("%s: %q on a terminal, want %q", args, text, want)
		}
		if p := w.run(words...).want(0).silent(); want != "" && p.stdout() != "" {
			t.Errorf("%s: %q without one", args, p.stdout())
		}
	}
}

// What is said beside the answer, and what is left out of it.
func TestHints(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		held bool // by somebody else
		code int
		want string
	}{
		"a holder that may not answer": {
			[]string{"release", "n", "--force"}, true, 0,
			"is told within one heartbeat (10s); if it does not answer, --now ends the hold without it\n",
		},
		"a token":        {[]string{"run", "-v", "n", "true"}, false, 0, "pgmutex: holding \"n\", token 1\npgmutex: gave \"n\" back\n"},
		"no token":       {[]string{"run", "-v", adv, "n", "true"}, false, 0, "pgmutex: holding \"n\"\npgmutex: gave \"n\" back\n"},
		"a flag too far": {[]string{"run", "job", "-w", "5", "--", "true"}, false, 64, "-w: flags go before the lock name, which is \"job\" here\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if c.held {
				w.hold("n")
			}
			p := w.run(c.args...).want(c.code)
			if got := p.stderr(); !strings.HasSuffix(got, c.want) {
				t.Errorf("stderr is %q, want %q at its end", got, c.want)
			}
		})
	}
}

// Doctor says what its exit code comes from.
func TestDoctorSaysWhy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run("doctor").want(2).says(`exit code 2: fsync is of state "error"`)
	w.run("doctor", "--json").want(2).silent()
	file := w.file("locks.db")
	w.run("run", "--local="+file, "n", "true").want(0)
	pgtest.Must(t, os.Chmod(file, 0o666))
	w.run("doctor", "--local="+file).want(1).says(`exit code 1: file is of state "warning"`)
}

func TestVersionFlag(t *testing.T) {
	w := &world{t: t, dir: t.TempDir()}
	if got, want := w.run("--version").want(0).silent().stdout(), w.run("version").want(0).stdout(); got != want {
		t.Errorf("--version says %q, version %q", got, want)
	}
}
