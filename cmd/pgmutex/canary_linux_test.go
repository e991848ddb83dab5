package main_test

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// However a password is handed over, no part of it is in what the command prints
// or in what other users of the host and of the server can see of it.
func TestCanary(t *testing.T) {
	t.Parallel()
	const password = `Canary1 @/?#Canary2%'\:Canary3`
	server := pgtest.Shared(t)
	w := newWorld(t)
	database := databaseOf(w.dsn)
	server.Role(t, "canary", password)
	pgtest.Exec(t, w.dsn, w.run("init", "--print", "--role", "canary").want(0).stdout())
	host, port, _ := strings.Cut(server.Addr(), ":")
	plain := fmt.Sprintf("host=%s port=%s user=canary dbname=%s sslmode=disable", host, port, database)
	quoted := strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(password)
	file := filepath.Join(t.TempDir(), "pass")
	pgtest.Must(t, os.WriteFile(file, []byte("*:*:*:*:"+strings.NewReplacer(`\`, `\\`, ":", `\:`).Replace(password)+"\n"), 0o600))
	u := url.URL{Scheme: "postgres", User: url.UserPassword("canary", password), Host: server.Addr(), Path: "/" + database, RawQuery: "sslmode=disable"}
	for way, env := range map[string][]string{
		"URL":        {"PGMUTEX_URL=" + u.String()},
		"keywords":   {"PGMUTEX_URL=" + plain + " password='" + quoted + "'"},
		"PGPASSWORD": {"PGMUTEX_URL=" + plain, "PGPASSWORD=" + password},
		"PGPASSFILE": {"PGMUTEX_URL=" + plain, "PGPASSFILE=" + file},
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			w := &world{t: t, dsn: w.dsn, dir: t.TempDir()}
			start := func(args ...string) *process {
				return w.startWith(func(c *exec.Cmd) { c.Env = append(c.Env, env...) }, args...)
			}
			clean := func(what, text string) {
				if strings.Contains(text, "Canary") {
					t.Errorf("%s shows a part of the password: %q", what, text)
				}
			}
			holder := start("run", way, "--", "sh", "-c", "echo $$ > pid; read line < gate")
			pgtest.Must(t, exec.Command("mkfifo", w.file("gate")).Run())
			child := w.pid("pid")
			waiter := start("run", "-w", "1s", way, "true")
			pgtest.WaitFor(t, "the waiter to say so", func() bool { return waiter.stderr() != "" })
			for _, pid := range []int{holder.cmd.Process.Pid, child, waiter.cmd.Process.Pid} {
				line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
				if err == nil {
					clean("cmdline", string(line))
				}
			}
			for _, what := range []string{"pg_stat_activity", "mutex_lock", "mutex_lock_waiter"} {
				clean(what, strings.Join(pgtest.Column[string](t, w.dsn, "SELECT r::text FROM "+what+" AS r"), "\n"))
			}
			var all []*process
			for _, args := range [][]string{
				{"list"}, {"list", "--json"}, {"show", way}, {"show", "--json", way}, {"history"}, {"history", "--json"},
				{"doctor"}, {"doctor", "--json"}, {"init"}, {"init", "--table", "nowhere.locks"}, {"run", "-n", way, "true"},
				{"run", "--engine", "advisory", way, "true"}, {"list", "--engine", "advisory"},
				{"release", way}, {"version"}, {"run", "--table", "none", way, "true"},
			} {
				all = append(all, start(args...).wait())
			}
			for _, p := range append(all, waiter.wait()) {
				clean(strings.Join(p.cmd.Args[1:], " "), p.stdout()+p.stderr())
			}
			pgtest.Must(t, os.WriteFile(w.file("gate"), []byte("\n"), 0o600))
			holder.want(0)
			clean("run", holder.stdout()+holder.stderr())
		})
	}
}
