package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/pgmutex/pgmutex/internal/faultconn"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// A codeCase leads to one row of the table of exit codes.
type codeCase struct {
	row  string // "code of when", as in the manual
	code int
	args []string

	// change, if it is not nil, prepares a world of the case's own.
	change func(*world)

	// during, if it is not nil, is what happens while it runs.
	during func(*world, seat, int)

	only string // "bare" or "terminal" if the other one is another case
}

func codeCases(t *testing.T) []codeCase {
	held := func(w *world) { w.hold("n") }
	waits := func(w *world, s seat) {
		pgtest.WaitFor(w.t, "the run to wait", func() bool { return strings.Contains(s.text(), "waiting for") })
	}
	chosen := func(dsn func(w *world) string) func(*world) { return func(w *world) { w.dsn = dsn(w) } }
	return []codeCase{
		{row: "0–255 run the command's own", code: 3, args: []string{"run", "n", "--", "sh", "-c", "exit 3"}},
		{row: "128+n run signal n ended the command", code: 143, args: []string{"run", "n", "--", "sh", "-c", "kill -TERM $$"}},
		{row: "128+n run signal n ended the wait", code: 130, args: []string{"run", "n", "true"}, change: held,
			during: func(w *world, s seat, _ int) { waits(w, s); s.send(syscall.SIGINT) }},
		{row: "0 list, show, history shown, also if nothing is held, and a lock that is free", code: 0, args: []string{"list"}},
		{row: "0 list, show, history shown, also if nothing is held, and a lock that is free", code: 0, args: []string{"show", "n"}},
		{row: "0 list, show, history shown, also if nothing is held, and a lock that is free", code: 0, args: []string{"history"}},
		{row: "0 monitor TERM or INT ended it", code: 0, args: []string{"monitor", "--listen", "127.0.0.1:0"}, during: func(w *world, s seat, _ int) {
			pgtest.WaitFor(w.t, "the monitor to serve", func() bool { return strings.Contains(s.text(), "address=") })
			s.send(syscall.SIGINT)
		}},
		{row: "0 doctor nothing is worse than a note", code: 0, args: []string{"doctor"}, change: func(w *world) { *w = *durable(w.t) }},
		{row: "0 release the holder was asked to stop", code: 0, args: []string{"release", "n", "--force", "--yes"}, change: held},
		{row: "0 release the hold was ended", code: 0, args: []string{"release", "n", "--force", "--now", "--yes"}, change: held},
		{row: "1 release nobody holds the lock", code: 1, args: []string{"release", "n", "--force"}},
		{row: "1 release you said no", code: 1, args: []string{"release", "n", "--force"}, change: held, only: "terminal",
			during: func(_ *world, s seat, _ int) { s.(*ttySeat).c.shows("[y/N]"); s.(*ttySeat).c.typed("n\n") }},
		{row: "1 doctor the worst finding is a warning", code: 1, args: []string{"doctor"}, change: func(w *world) {
			file := w.file("locks.db")
			w.run("run", "--local="+file, "n", "true").want(0)
			pgtest.Must(w.t, os.Chmod(file, 0o666))
			w.dsn = "local:" + file
		}},
		{row: "2 doctor the worst finding is an error", code: 2, args: []string{"doctor"}}, // fsync is off
		{row: "64 all wrong flags or arguments; nothing was connected to", code: 64, args: []string{"run", "--stale", "0", "n", "true"}},
		{row: "69 all the store cannot be reached", code: 69, args: []string{"list"}, change: func(w *world) {
			proxy := faultconn.New(w.t, pgtest.Shared(w.t).Addr())
			proxy.Refuse(true)
			w.dsn = proxy.DSN(w.dsn)
		}},
		{row: "69 all the store cannot do it", code: 69, args: []string{"history", adv}},
		{row: "70 all the output cannot be written, or a mistake in pgmutex", code: 70, args: []string{"list", "--json"}, change: func(w *world) {
			held(w)
			w.stdout = "/dev/full"
		}},
		{row: "75 run somebody else holds the lock (-E)", code: 75, args: []string{"run", "-n", "n", "true"}, change: held},
		{row: "75 run the wait is over (-E)", code: 75, args: []string{"run", "-w", "0.2", "n", "true"}, change: held},
		{row: "75 run it would wait for the run that it runs under (-E)", code: 75, args: []string{"run", "n", "--", program, "run", "n", "true"}},
		{row: "75 release the lock has changed hands", code: 75, args: []string{"release", "n", "--force"}, only: "terminal",
			during: func(w *world, s seat, _ int) {
				s.(*ttySeat).c.shows("[y/N]")
				pgtest.Exec(w.t, w.dsn, "UPDATE mutex_lock SET instance_id = 'next~1', promised_by = NULL, last_heartbeat = now()")
				s.(*ttySeat).c.typed("y\n")
			}, change: func(w *world) {
				pgtest.Exec(w.t, w.dsn, "INSERT INTO mutex_lock (lock_name, instance_id, last_heartbeat, acquired_at) VALUES ('n', 'first~1', now(), now())")
			}},
		{row: "76 run the lock was lost while the command ran (--lost-exit-code)", code: 76,
			args:   []string{"run", "--stale", "6s", "n", "--", "sh", "-c", "echo up >up; exec sleep 300"},
			during: func(w *world, _ seat, _ int) { w.await("up"); w.run("release", "n", "--force", "--yes").want(0) }},
		{row: "77 all the role lacks a right in the store", code: 77, args: []string{"run", "n", "true"}, change: func(w *world) {
			role := "nothing" + strings.ToLower(strings.Map(letters, w.t.Name()))
			pgtest.Shared(w.t).Role(w.t, role, "secret")
			w.dsn = pgtest.Shared(w.t).PasswordDSN(databaseOf(w.dsn), role, "secret")
		}},
		{row: "78 all no store is chosen", code: 78, args: []string{"list"}, only: "bare", change: chosen(func(*world) string { return "" })},
		{row: "78 all the store is not set up", code: 78, args: []string{"list"}, change: chosen(func(w *world) string {
			return pgtest.Shared(w.t).Database(w.t)
		})},
		{row: "126 run the command cannot be executed", code: 126, args: []string{"run", "n", t.TempDir()}},
		{row: "127 run there is no such command", code: 127, args: []string{"run", "n", "no-such-command"}},
	}
}

func letters(r rune) rune {
	if r < 'a' || r > 'z' {
		return -1
	}
	return r
}

// Each row of the table of exit codes is what the program ends with, without and
// with a terminal.
func TestCodeTable(t *testing.T) {
	t.Parallel()
	head, rows := rowsOf(t, "## Exit codes")
	if !slices.Equal(head, []string{"code", "of", "when"}) {
		t.Fatalf("the columns are %q", head)
	}
	cases := codeCases(t)
	for _, row := range rows {
		text := strings.ReplaceAll(strings.Join(row, " "), "`", "")
		if !slices.ContainsFunc(cases, func(c codeCase) bool { return c.row == text }) {
			t.Errorf("nothing leads to %q", text)
		}
	}
	for i, c := range cases {
		if !slices.ContainsFunc(rows, func(row []string) bool { return strings.ReplaceAll(strings.Join(row, " "), "`", "") == c.row }) {
			t.Errorf("%q is not in the manual", c.row)
		}
		for _, where := range []string{"bare", "terminal"} {
			if c.only != "" && c.only != where {
				continue
			}
			t.Run(fmt.Sprintf("%d,%s", i, where), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				if c.change != nil {
					c.change(w)
				}
				var s seat = &bareSeat{w: w}
				if where == "terminal" {
					s = &ttySeat{w: w}
				}
				wrapper := s.run(slices.Clone(c.args)...)
				if c.during != nil {
					c.during(w, s, wrapper)
				}
				if got := s.code(); got != c.code {
					t.Errorf("%q: exit code %d, the table says %s\n%s", c.args, got, c.row, s.text())
				}
			})
		}
	}
}

// to makes a program write where the world says.
func (w *world) to(c *exec.Cmd) {
	if w.stdout == "" {
		return
	}
	f, err := os.OpenFile(w.stdout, os.O_WRONLY, 0)
	pgtest.Must(w.t, err)
	w.t.Cleanup(func() { f.Close() })
	c.Stdout = f
}
