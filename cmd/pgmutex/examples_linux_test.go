package main_test

import (
	"encoding/json"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// stub is what examples call in place of somebody's programs: it writes its
// arguments down, and stays if it is told to.
const stub = `#!/bin/sh
echo "$0 $*" >>"$DIR/ran"
while [ -e "$DIR/stay" ]; do sleep 0.02; done
`

// examples is a world in which command lines of manuals can be run by a shell.
func examples(t *testing.T, programs ...string) *world {
	t.Helper()
	w := newWorld(t)
	for _, name := range programs {
		pgtest.Must(t, os.WriteFile(w.file(name), []byte(stub), 0o700))
	}
	pgtest.Must(t, os.Symlink(program, w.file("pgmutex")))
	return w
}

func (w *world) example(c *exec.Cmd) {
	u, err := url.Parse(w.dsn)
	pgtest.Must(w.t, err)
	c.Env = append(c.Env, "DIR="+w.dir, "PATH="+w.dir+":"+os.Getenv("PATH"), "PGHOST="+u.Hostname(), "PGPORT="+u.Port(),
		"PGUSER="+u.User.Username(), "PGDATABASE="+databaseOf(w.dsn), "PGSSLMODE=disable")
}

// shell runs a line.
func (w *world) shell(line string) *process {
	w.t.Helper()
	return w.startWith(func(c *exec.Cmd) {
		w.example(c)
		c.Path, c.Args = "/bin/sh", []string{"sh", "-c", line}
	})
}

// ran returns what the stubs were called with, and forgets it.
func (w *world) ran() string {
	text := strings.ReplaceAll(w.read("ran"), w.dir+"/", "")
	_ = os.Remove(w.file("ran"))
	return strings.ReplaceAll(text, "./", "")
}

// Each example in the help runs and does what it says. The monitor's run until
// they are ended, and against other hosts; its own tests have their likes.
func TestHelpExamplesRun(t *testing.T) {
	t.Parallel()
	w := examples(t, "report", "cleanup", "serve")
	server := pgtest.Shared(t)
	server.Role(t, "help_app", "x")
	server.Role(t, "help_grafana", "x")
	codes := map[string]int{"doctor": 2, "list --watch": -1} // fsync is off; a signal ends it
	for _, command := range []string{"", "run", "list", "show", "history", "release", "init", "doctor"} {
		_, text, _ := strings.Cut(w.run(append(strings.Fields(command), "--help")...).want(0).stdout(), "\nExamples:\n")
		text, _, _ = strings.Cut(text, "\n\n")
		for line := range strings.Lines(text) {
			line, _, _ = strings.Cut(strings.TrimSpace(line), "   (")
			line = regexp.MustCompile(`--role (\w+)`).ReplaceAllString(line, "--role help_$1")
			end := func() {}
			if strings.Contains(line, "release ") {
				var p *process
				p, _ = w.hold("nightly-report", "--stale", "6s")
				end = func() { p.want(76) }
			}
			p := w.shell(strings.Replace(line, "pgmutex list", "exec pgmutex list", 1))
			if strings.HasSuffix(line, "--watch") {
				pgtest.WaitFor(t, "the list", func() bool { return p.stdout() != "" })
				p.signal(syscall.SIGTERM)
			}
			code := 0
			for part, c := range codes {
				if strings.Contains(line, part) {
					code = c
				}
			}
			p.want(code)
			end()
			if _, after, ok := strings.Cut(line, "-- ./"); ok {
				if got := w.ran(); strings.TrimSpace(got) != strings.TrimSpace(after) {
					t.Errorf("%q ran %q", line, got)
				}
			}
		}
	}
}

// deployed returns a file of the examples, with the places of a test.
func deployed(t *testing.T, w *world, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../deploy", name))
	pgtest.Must(t, err)
	s := regexp.MustCompile(`/(usr/local/bin|usr/bin|app)/(pgmutex|report|serve|worker|sync-files)`).ReplaceAllString(string(text), w.dir+"/$2")
	return strings.ReplaceAll(s, "postgres://app@db.example/app", w.dsn)
}

// found returns what follows a text on its line.
func found(t *testing.T, text, after string) string {
	t.Helper()
	_, rest, ok := strings.Cut(text, after)
	if !ok {
		t.Fatalf("%q is not in %q", after, text)
	}
	rest, _, _ = strings.Cut(rest, "\n")
	return rest
}

// Jobs of a crontab run once, and are silent where they run elsewhere.
func TestCronExample(t *testing.T) {
	t.Parallel()
	w := examples(t, "report", "sync-files")
	text := deployed(t, w, "cron/pgmutex.cron")
	lines := regexp.MustCompile(`(?m)^\S+ \S+ \S+ \S+ \S+  app  (.*)$`).FindAllStringSubmatch(text, -1)
	if len(lines) != 2 || found(t, text, "\nPGMUTEX_URL=") != w.dsn {
		t.Fatalf("crontab: %q", text)
	}
	for i, want := range []string{"report --all\n", "sync-files \n"} {
		line := strings.ReplaceAll(lines[i][1], "sleep 60", "sleep 0.1")
		w.shell(line).want(0).silent()
		if got := w.ran(); got != want {
			t.Errorf("%s ran %q", line, got)
		}
		lock := []string{"nightly-report", "sync"}[i]
		_, end := w.hold(lock)
		w.shell(strings.ReplaceAll(line, "-w 4m", "-w 0.2")).want(0).silent()
		if got := w.ran(); got != "" {
			t.Errorf("beside another run, %s ran %q", line, got)
		}
		end()
	}
	// A job that fails is no success, though a skipped one is.
	pgtest.Must(t, os.WriteFile(w.file("sync-files"), []byte("#!/bin/sh\nexit 7\n"), 0o700))
	w.shell(strings.ReplaceAll(lines[1][1], "sleep 60", "true")).want(7)
}

// The units are ones that systemd takes, and their command lines work: the second
// host takes over from a stopped one, and a job runs on one.
func TestSystemdExamples(t *testing.T) {
	t.Parallel()
	w := examples(t, "report", "serve")
	units := map[string]string{}
	for _, name := range []string{"pgmutex-leader.service", "pgmutex-report.service", "pgmutex-report.timer"} {
		units[name] = deployed(t, w, "systemd/"+name)
		pgtest.Must(t, os.WriteFile(w.file(name), []byte(units[name]), 0o600))
	}
	if _, err := exec.LookPath("systemd-analyze"); err == nil {
		for name := range units {
			if out, err := exec.Command("systemd-analyze", "verify", "--man=no", w.file(name)).CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("systemd-analyze: %v\n%s", err, out)
			}
		}
	}
	if found(t, units["pgmutex-leader.service"], "\nEnvironment=PGMUTEX_URL=") != w.dsn {
		t.Error("the store of the example is another")
	}
	pgtest.Must(t, os.WriteFile(w.file("stay"), nil, 0o600))
	line := "exec " + found(t, units["pgmutex-leader.service"], "\nExecStart=")
	first := w.shell(line)
	pgtest.WaitFor(t, "the first to serve", func() bool { return strings.Count(w.read("ran"), "serve") == 1 })
	second := w.shell(line)
	pgtest.WaitFor(t, "the second to wait", func() bool { return strings.Contains(second.stderr(), "waiting for") })
	first.signal(syscall.SIGTERM)
	first.want(143)
	pgtest.WaitFor(t, "the second to serve", func() bool { return strings.Count(w.read("ran"), "serve") == 2 })
	second.signal(syscall.SIGTERM)
	second.want(143)

	pgtest.Must(t, os.Remove(w.file("stay")))
	w.ran()
	job := found(t, units["pgmutex-report.service"], "\nExecStart=")
	w.shell(job).want(0).silent()
	_, end := w.hold("nightly-report")
	w.shell(job).want(0).silent()
	end()
	if got := w.ran(); got != "report --all\n" {
		t.Errorf("ran %q", got)
	}
}

// asFirst runs the words of a container's entry point as its first process.
func (w *world) asFirst(t *testing.T, words []string) *process {
	t.Helper()
	flags := []string{"--pid", "--fork", "--mount-proc", "--kill-child"}
	inNamespace(t, "", flags...)
	return w.startWith(func(c *exec.Cmd) {
		w.example(c)
		next := exec.Command("unshare", append(flags, words...)...)
		next.Dir, next.Env, next.Stdout, next.Stderr = c.Dir, c.Env, c.Stdout, c.Stderr
		next.Env = append(next.Env, "PATH="+w.dir+":"+os.Getenv("PATH"))
		*c = *next
	})
}

func wordsOf(t *testing.T, text string) []string {
	t.Helper()
	var words []string
	pgtest.Must(t, json.Unmarshal([]byte(text), &words))
	return words
}

// Entry points work as the first process, which "docker stop" signals.
func TestContainerExamples(t *testing.T) {
	t.Parallel()
	w := examples(t, "report", "worker")
	image := deployed(t, w, "container/Dockerfile")
	words := append(wordsOf(t, found(t, image, "\nENTRYPOINT ")), wordsOf(t, found(t, image, "\nCMD "))...)
	w.asFirst(t, words).want(0).silent()
	if got := w.ran(); got != "worker \n" {
		t.Errorf("ran %q", got)
	}
	pgtest.Must(t, os.WriteFile(w.file("stay"), nil, 0o600))
	p := w.asFirst(t, words)
	pgtest.WaitFor(t, "the worker", func() bool { return w.read("ran") != "" })
	out, err := exec.Command("pgrep", "-P", strconv.Itoa(p.cmd.Process.Pid)).Output()
	pgtest.Must(t, err)
	pgtest.Must(t, exec.Command("kill", "-TERM", strings.TrimSpace(string(out))).Run())
	p.want(143)
	w.isFree("worker")

	pgtest.Must(t, os.Remove(w.file("stay")))
	w.ran()
	job := deployed(t, w, "kubernetes/cronjob.yaml")
	words = append(wordsOf(t, found(t, job, "command: ")), wordsOf(t, found(t, job, "args: "))...)
	w.asFirst(t, words).want(0).silent()
	_, end := w.hold("nightly-report")
	w.asFirst(t, words).want(0).silent()
	end()
	if got := w.ran(); got != "report --all\n" {
		t.Errorf("ran %q", got)
	}
}

// What the manual shows is from these files.
func TestManualShowsTheExamples(t *testing.T) {
	text, err := os.ReadFile("../../docs/cli.md")
	pgtest.Must(t, err)
	_, section, _ := strings.Cut(string(text), "\n## Examples\n")
	var all strings.Builder
	for _, name := range []string{"cron/pgmutex.cron", "systemd/pgmutex-leader.service", "container/Dockerfile"} {
		file, err := os.ReadFile(filepath.Join("../../deploy", name))
		pgtest.Must(t, err)
		all.Write(file)
	}
	blocks := strings.Split(section, "```")
	if len(blocks) < 7 {
		t.Fatalf("%d blocks", len(blocks)/2)
	}
	for i := 1; i < len(blocks); i += 2 {
		for line := range strings.Lines(strings.TrimPrefix(blocks[i], "\n")) {
			if !strings.Contains("\n"+all.String(), "\n"+line) {
				t.Errorf("%q is in none of the examples", line)
			}
		}
	}
}
