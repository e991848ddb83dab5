package main_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex/internal/faultconn"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// A pager is a webhook's receiver.
type pager struct {
	server *httptest.Server
	mu     sync.Mutex
	events []map[string]any
	auth   []string
}

func newPager(t *testing.T) *pager {
	p := &pager{}
	p.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		var event map[string]any
		if err := json.NewDecoder(r.Body).Decode(&event); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		p.events = append(p.events, event)
		p.auth = append(p.auth, r.Header.Get("Authorization"))
	}))
	t.Cleanup(p.server.Close)
	return p
}

// got returns what came, such as "fired job".
func (p *pager) got() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []string
	for _, e := range p.events {
		list = append(list, e["event"].(string)+" "+e["lock"].(string))
	}
	return list
}

func (p *pager) await(t *testing.T, want ...string) {
	t.Helper()
	pgtest.WaitFor(t, "the webhook to get "+strings.Join(want, ", "), func() bool { return len(p.got()) >= len(want) })
	if got := p.got(); !slices.Equal(got, want) {
		t.Fatalf("the webhook got %q, want %q", got, want)
	}
}

// monitor starts a monitor and returns it with the address that it serves on, once
// it has looked at the store.
func (w *world) monitor(args ...string) (p *process, address string) {
	w.t.Helper()
	p = w.start(append([]string{"monitor", "--listen", "127.0.0.1:0"}, args...)...)
	address = p.serves()
	pgtest.WaitFor(w.t, "the monitor to be ready", func() bool { code, _ := get(address + "/readyz"); return code == 200 })
	return p, address
}

// serves waits for a monitor's address.
func (p *process) serves() (address string) {
	p.t.Helper()
	pattern := regexp.MustCompile(`address=(\S+)`)
	pgtest.WaitFor(p.t, "the monitor to serve", func() bool {
		if m := pattern.FindStringSubmatch(p.stderr()); m != nil {
			address = "http://" + m[1]
		}
		return address != ""
	})
	return address
}

func get(url string) (int, string) {
	r, err := http.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return 0, err.Error()
	}
	return r.StatusCode, string(text)
}

// A holder that stops is told of although nobody waits for its lock: once, by one of
// two monitors, not before the threshold, and once more when it goes on.
func TestMonitorTellsOnce(t *testing.T) {
	t.Parallel()
	w, page := newWorld(t), newPager(t)
	secret := w.file("secret")
	pgtest.Must(t, os.WriteFile(secret, []byte("Bearer s3cret\n"), 0o600))
	log := w.file("told")
	tool := w.file("tool")
	pgtest.Must(t, os.WriteFile(tool, []byte("#!/bin/sh\necho \"$PGMUTEX_ALERT_EVENT $1\" >> \"$2\"\n"), 0o700))
	args := []string{"--alert", "2s", "--every", "1s", "--webhook", page.server.URL, "--webhook-secret-file", secret,
		"--command", tool, "--", "an arg", log}
	one, address1 := w.monitor(args...)
	two, address2 := w.monitor(args...)

	holder, end := w.hold("job", "--heartbeat", "500ms")
	stop := time.Now()
	holder.signal(syscall.SIGSTOP)
	page.await(t, "fired job")
	took := time.Since(stop)
	// The last heartbeat may have come half a second before the stop.
	if took < 1500*time.Millisecond || took > 20*time.Second {
		t.Errorf("told %v after the stop, want 2s after the last heartbeat and within a second or so", took)
	}
	t.Logf("told %v after the stop", took)
	age := page.events[0]["heartbeat_age"].(float64)
	if age < 2 {
		t.Errorf("told at the age of %vs", age)
	}
	if page.auth[0] != "Bearer s3cret" {
		t.Errorf("the header is %q", page.auth[0])
	}
	// The server decides how old a heartbeat is; a few looks of both monitors later
	// nothing has been added.
	looks := func() bool {
		old := pgtest.Column[float64](t, w.dsn,
			"SELECT extract(epoch FROM clock_timestamp() - last_heartbeat)::float8 FROM public.mutex_lock WHERE lock_name = 'job'")
		return len(old) == 1 && old[0] > age+2.5
	}
	pgtest.WaitFor(t, "further looks", looks)
	page.await(t, "fired job")
	for _, address := range []string{address1, address2} {
		if _, text := get(address + "/metrics"); !strings.Contains(text, "\npgmutex_monitor_alerts_standing 1") || !strings.Contains(text, `pgmutex_fleet_locks_held{state="held"} 1`) {
			t.Errorf("the alert or the lock is not in %s", text)
		}
	}

	holder.signal(syscall.SIGCONT)
	page.await(t, "fired job", "cleared job")
	if page.events[0]["id"] != page.events[1]["id"] || page.events[1]["reason"] != "heard again" {
		t.Errorf("got %v", page.events)
	}
	end()
	pgtest.WaitFor(t, "the command to be told", func() bool { return strings.Count(w.read("told"), "\n") >= 2 })
	if got := w.read("told"); got != "fired an arg\ncleared an arg\n" {
		t.Errorf("the command wrote %q", got)
	}
	for _, p := range []*process{one, two} {
		p.signal(syscall.SIGTERM)
		p.want(0)
		if strings.Contains(p.stderr(), "s3cret") {
			t.Errorf("the secret is in the log: %s", p.stderr())
		}
	}
	page.await(t, "fired job", "cleared job")
	if got := one.stderr() + two.stderr(); strings.Count(got, "lock holder is silent") != 1 {
		t.Errorf("the log says %s", got)
	}
	w.isFree("pgmutex.monitor")
}

// When the monitor that tells is killed, the other one tells what comes then, and
// not what has been told.
func TestMonitorTakesOver(t *testing.T) {
	t.Parallel()
	w, page := newWorld(t), newPager(t)
	args := []string{"--alert", "1s", "--every", "500ms", "--stale", "2s", "--webhook", page.server.URL}
	one, address := w.monitor(args...)
	w.awaitHolder("pgmutex.monitor")
	two, _ := w.monitor(args...)
	if _, text := get(address + "/metrics"); !strings.Contains(text, "\npgmutex_monitor_active 1") {
		t.Error("the first monitor does not tell")
	}
	first, endFirst := w.hold("first", "--heartbeat", "200ms")
	second, endSecond := w.hold("second", "--heartbeat", "200ms")
	first.signal(syscall.SIGSTOP)
	page.await(t, "fired first")
	pgtest.WaitFor(t, "the line in the history", func() bool {
		return len(pgtest.Column[string](t, w.dsn, "SELECT lock_name FROM public.mutex_lock_event WHERE lock_name LIKE 'pgmutex.alert.%'")) == 1
	})
	pgtest.Must(t, one.cmd.Process.Kill())
	second.signal(syscall.SIGSTOP)
	page.await(t, "fired first", "fired second")
	first.signal(syscall.SIGCONT)
	page.await(t, "fired first", "fired second", "cleared first")
	second.signal(syscall.SIGCONT)
	page.await(t, "fired first", "fired second", "cleared first", "cleared second")
	endFirst()
	endSecond()
	two.signal(syscall.SIGTERM)
	two.want(0)
}

// A server that is not there yet, or goes away, is waited for: the probes say so,
// and the holders' silence meanwhile is not told.
func TestMonitorOutage(t *testing.T) {
	t.Parallel()
	w, page := newWorld(t), newPager(t)
	proxy := faultconn.New(t, pgtest.Shared(t).Addr())
	through := env("PGMUTEX_URL=" + pgtest.With(proxy.DSN(w.dsn), "password", "pw9"))
	proxy.Refuse(true)
	p := w.startWith(through, "monitor", "--alert", "1s", "--every", "200ms", "--stale", "3s", "--listen", "127.0.0.1:0", "--webhook", page.server.URL)
	address := p.serves()
	probe := func(what string, code int) {
		t.Helper()
		pgtest.WaitFor(t, what, func() bool { got, _ := get(address + "/readyz"); return got == code })
	}
	pgtest.WaitFor(t, "the monitor to miss the server", func() bool { return strings.Contains(p.stderr(), "cannot look at the store") })
	probe("the monitor to be not ready", 503)
	if code, _ := get(address + "/healthz"); code != 200 {
		t.Errorf("it is not healthy: %d", code)
	}
	proxy.Refuse(false)
	probe("the monitor to be ready", 200)

	holder := w.startWith(through, "run", "--heartbeat", "200ms", "job", "--", "sleep", "600")
	w.awaitHolder("job")
	w.awaitHolder("pgmutex.monitor")
	proxy.Refuse(true)
	proxy.Cut()
	probe("the monitor to miss the server", 503)
	pgtest.WaitFor(t, "the holder to be silent for two seconds", func() bool {
		old := pgtest.Column[float64](t, w.dsn,
			"SELECT extract(epoch FROM clock_timestamp() - last_heartbeat)::float8 FROM public.mutex_lock WHERE lock_name = 'job'")
		return len(old) == 1 && old[0] > 2
	})
	proxy.Refuse(false)
	probe("the monitor to be ready again", 200)
	pgtest.WaitFor(t, "the monitor to say so", func() bool { return strings.Count(p.stderr(), "the store can be looked at again") == 2 })
	holder.signal(syscall.SIGTERM)
	holder.want(143)
	p.signal(syscall.SIGTERM)
	p.want(0)
	if got := page.got(); len(got) > 0 {
		t.Errorf("the webhook got %q", got)
	}
	if strings.Contains(p.stderr(), "pw9") {
		t.Errorf("the password is in the log: %s", p.stderr())
	}
}

// The local store is watched alike.
func TestMonitorLocal(t *testing.T) {
	t.Parallel()
	w, page := emptyWorld(t), newPager(t)
	store := "--local=" + w.file("locks.db")
	w.start("monitor", store, "--alert", "1s", "--every", "500ms", "--webhook", page.server.URL)
	holder := w.start("run", store, "--heartbeat", "200ms", "job", "--", "sh", "-c", "echo $$ > pid; exec sleep 600")
	w.pid("pid")
	holder.signal(syscall.SIGSTOP)
	page.await(t, "fired job")
	holder.signal(syscall.SIGCONT)
	page.await(t, "fired job", "cleared job")
	holder.signal(syscall.SIGTERM)
	holder.want(143)
}

// Mistakes are found before anything is connected to.
func TestMonitorUsage(t *testing.T) {
	t.Parallel()
	w := emptyWorld(t)
	pgtest.Must(t, os.WriteFile(w.file("empty"), nil, 0o600))
	for _, c := range []struct {
		text string
		args []string
	}{
		{"--alert", []string{"--alert", "0"}},
		{"--alert", []string{"--alert", "soon"}},
		{"--every", []string{"--every", "1ms"}},
		{"--stale", []string{"--stale", "1ms"}},
		{"--webhook: must be a URL", []string{"--webhook", "hooks.example"}},
		{"--webhook: must not have a user", []string{"--webhook", "https://u:pw9@hooks.example"}},
		{"is no name of a header", []string{"--webhook", "https://hooks.example", "--webhook-header", "a b"}},
		{"--webhook-secret-file", []string{"--webhook", "https://hooks.example", "--webhook-secret-file", "none"}},
		{"is empty", []string{"--webhook", "https://hooks.example", "--webhook-secret-file", "empty"}},
		{"need --webhook", []string{"--webhook-secret-file", "empty"}},
		{"--command", []string{"--command", "no-such-program"}},
		{"arguments are for --command", []string{"--", "x"}},
		{"--listen", []string{"--listen", "localhost"}},
		{"--label-locks", []string{"--label-locks", "("}},
		{"--label-max", []string{"--label-max", "3"}},
		{"--label-max", []string{"--label-locks", ".*", "--label-max", "0"}},
		{"--lock", []string{"--lock", strings.Repeat("x", 65)}},
		{"--namespace", []string{"--namespace", strings.Repeat("x", 60)}},
		{"no heartbeats", []string{"--engine", "advisory"}},
	} {
		p := w.startWith(func(cmd *exec.Cmd) {
			cmd.Env = append(cmd.Env, "PGMUTEX_URL=postgres://nobody@127.0.0.1:1/none?connect_timeout=5")
		}, append([]string{"monitor"}, c.args...)...)
		p.want(64).says(c.text)
		if strings.Contains(p.stderr(), "pw9") {
			t.Errorf("%q shows the password: %s", c.args, p.stderr())
		}
	}
	w.run("monitor").want(78).says("init") // the tables are missing
}
