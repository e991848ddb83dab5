//go:build faults && long

package faults

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// Row 22: the network swallows everything from one moment on, with a heartbeat or its
// answer on the way, which either side's TCP goes on sending. The holder ends at its
// deadline; a lease is taken over when it is stale, and an advisory lock is free when
// the server gives the session up: because it says nothing, or, where the server has
// no limit for that, because TCP gets no answer.
func TestN22BlackHoleWithDataInFlight(t *testing.T) {
	for _, kind := range []struct{ engine, first string }{
		{"lease", "requests"}, {"lease", "replies"}, {"advisory", "requests"}, {"advisory", "replies"},
		{"advisory by TCP", "requests"}, {"advisory by TCP", "replies"},
	} {
		t.Run(kind.engine+" "+kind.first, func(t *testing.T) {
			t.Parallel()
			engine, byTCP := strings.CutSuffix(kind.engine, " by TCP")
			d := newDarkness(t)
			w := engines[engine](t, d.server(t))
			w.allowed = 0 // nothing ends a session here but its own silence
			staleAfter, trust, bound := stale, fence, stale+slack
			if w.sessions {
				staleAfter, trust, bound = session, trusted, session+slack
			}
			if byTCP { // as on a server that does not know the setting
				pgtest.Exec(t, w.dsn, `SET allow_system_table_mods = on; CREATE OR REPLACE VIEW pg_catalog.pg_settings AS
					SELECT * FROM pg_catalog.pg_show_all_settings() AS s WHERE s.name <> 'idle_session_timeout'`)
				bound += slack // the kernel counts from the first time that it sends again
			}
			c, rival := w.child("holder", "job", d.inside(w)), w.client("rival", hasty)
			c.ask("take", "taken")
			c.ask("take unseen", "taken")
			pass(t.Context(), staleAfter) // heartbeats have their connections
			mark := w.server.LogMark()
			d.fall(kind.first)
			pgtest.WaitFor(t, "one of the "+kind.first+" to be lost", func() bool { return d.swallowed(kind.first) > 0 })
			d.fall("requests", "replies")
			cut := now()
			w.history.add(call{Op: "fault", Outcome: "dark", Start: cut})
			granted := rival.next("job", 3*staleAfter)
			var beat time.Time
			if !w.sessions {
				beat = pgtest.One[time.Time](t, w.dsn, "SELECT last_heartbeat FROM mutex_lock WHERE lock_name = 'job'")
			}
			c.send("told")
			late, err := time.ParseDuration(c.reply())
			pgtest.Must(t, err)
			told := now()
			c.ask("held", "false")
			g := <-granted
			if g == nil {
				return
			}
			t.Logf("told %v after the deadline, %v after the cut, next holder %v after the cut", late, told-cut, g.began-cut)
			if late < 0 || late > slack || told-cut > trust+slack {
				t.Errorf("told %v after the deadline, %v after the cut", late, told-cut)
			}
			if told > g.began {
				t.Errorf("told %v after the next holder began", told-g.began)
			}
			if after := g.began - cut; after > bound {
				t.Errorf("the next holder began %v after the cut", after)
			}
			if w.sessions {
				said := strings.Join(endings(w.server.LogSince(mark)), "; ")
				t.Logf("the server says: %s", said)
				if byTCP && !strings.Contains(said, "timed out") {
					t.Error("something else has ended the session")
				}
			} else if silence := g.Info().AcquiredAt.Sub(beat); silence < stale {
				t.Errorf("taken over %v after the last heartbeat", silence)
			}
			// What was on its way all the time arrives now, and changes nothing.
			d.lift()
			c.ask("end", "lost")
			c.quit()
			if err := g.Heartbeat(t.Context()); err != nil {
				t.Errorf("the rival: %v", err)
			}
			pgtest.Must(t, g.end(t.Context()))
			w.judge(demand{"acquire granted", "fault"})
		})
	}
}

// hasty makes of the moment at which a lock is free that of the next grant.
func hasty(o *pgmutex.Options) { o.PollInterval = 10 * time.Millisecond }

// endings are the log's lines about connections that the server gave up.
func endings(log string) (lines []string) {
	for line := range strings.Lines(log) {
		if strings.Contains(line, "timed out") || strings.Contains(line, "timeout") {
			_, what, _ := strings.Cut(strings.TrimSpace(line), "  ")
			lines = append(lines, what)
		}
	}
	return lines
}

// Row 24: the holder's host is gone in the middle of a request and comes back with
// another address, so that nobody there knows of the connections that the server
// believes in, and nobody refuses what it sends to them. A process of that host is
// the next holder, as soon as anybody may be.
func TestN24HalfOpen(t *testing.T) {
	for name, fresh := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDarkness(t)
			w := fresh(t, d.server(t))
			w.allowed = 0
			staleAfter := stale
			if w.sessions {
				staleAfter = session
			}
			c := w.child("holder", "job", d.inside(w))
			c.ask("take", "taken")
			belief := call{Op: "belief", Client: "holder", Name: "job", Start: now()}
			c.ask("write", "committed")
			c.send("token")
			token, err := strconv.ParseInt(c.reply(), 10, 64)
			pgtest.Must(t, err)
			pass(t.Context(), staleAfter) // heartbeats have their connections
			mark := w.server.LogMark()
			d.fall("replies")
			pgtest.WaitFor(t, "an answer to be lost", func() bool { return d.swallowed("replies") > 0 })
			d.fall("requests", "replies")
			cut := now()
			w.history.add(call{Op: "fault", Outcome: "reboot", Start: cut})
			c.signal(syscall.SIGKILL)
			<-c.ended
			belief.Token, belief.End, belief.Over = token, cut, now() // what it cannot write down itself
			w.history.add(belief)
			d.move()
			d.lift()
			var beat time.Time
			if !w.sessions {
				beat = pgtest.One[time.Time](t, w.dsn, "SELECT last_heartbeat FROM mutex_lock WHERE lock_name = 'job'")
			}
			next := w.child("next", "job", d.inside(w))
			next.ask("take", "taken")
			after := now() - cut
			t.Logf("the next holder came %v after the cut", after)
			if after > staleAfter+slack {
				t.Errorf("the next holder came %v after the cut", after)
			}
			const halfOpen = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND host(client_addr) = $1"
			left := pgtest.One[int64](t, w.dsn, halfOpen, d.before())
			if w.sessions {
				t.Logf("the server says: %s", strings.Join(endings(w.server.LogSince(mark)), "; "))
			} else {
				if silence := pgtest.One[time.Time](t, w.dsn, "SELECT acquired_at FROM mutex_lock WHERE lock_name = 'job'").Sub(beat); silence < stale {
					t.Errorf("taken over %v after the last heartbeat", silence)
				}
				if left == 0 {
					t.Error("vacuous: the server has noticed that its connections lead nowhere")
				}
			}
			next.ask("write", "committed")
			next.ask("end", "released")
			next.quit()
			// A lease does not need its session, and leaves its end to the server's
			// keepalives: two hours by default.
			pgtest.Exec(t, w.dsn, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND host(client_addr) = $1", d.before())
			w.judge(demand{"acquire granted", "write committed", "fault"})
		})
	}
}

// A darkness can fall between a host and the server. The host is a network namespace,
// and so is the router that stands in between and drops what it is told to: each
// side's TCP has sent it, and hears of nothing.
type darkness struct {
	t            *testing.T
	host, router string // the namespaces
	link         string // the host's
	net          string // the first three bytes of all addresses
}

var darknesses atomic.Int32

func newDarkness(t *testing.T) *darkness {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("a network namespace takes root")
	}
	for program, pkg := range map[string]string{"ip": "iproute2", "nft": "nftables"} {
		if _, err := exec.LookPath(program); err == nil {
			continue
		}
		out, err := exec.CommandContext(t.Context(), "apt-get", "install", "-q", "-y", "--no-install-recommends", pkg).CombinedOutput()
		if err != nil {
			t.Fatalf("this test needs %s (apt-get install %s): %v\n%s", program, pkg, err, out)
		}
	}
	n := os.Getpid()%1000*10 + int(darknesses.Add(1))
	d := &darkness{
		t: t, host: fmt.Sprint("pgmutex-h", n), router: fmt.Sprint("pgmutex-r", n),
		link: fmt.Sprint("pgm-h", n), net: fmt.Sprintf("198.19.%d.", n%256),
	}
	for _, namespace := range []string{d.host, d.router} {
		if out, err := exec.CommandContext(t.Context(), "ip", "netns", "add", namespace).CombinedOutput(); err != nil {
			t.Fatalf("no network namespaces here: %v\n%s", err, out)
		}
		t.Cleanup(func() { // the interfaces go with it
			if out, err := exec.Command("ip", "netns", "del", namespace).CombinedOutput(); err != nil {
				t.Errorf("remove %s: %v\n%s", namespace, err, out)
			}
		})
	}
	outer := fmt.Sprint("pgm-s", n)
	for _, command := range []string{
		"ip link add " + outer + " type veth peer name server netns " + d.router,
		"ip -n " + d.router + " link add host type veth peer name " + d.link + " netns " + d.host,
		"ip addr add " + d.net + "10/29 dev " + outer,
		"ip link set " + outer + " up",
		"ip -n " + d.router + " addr add " + d.net + "9/29 dev server",
		"ip -n " + d.router + " addr add " + d.net + "1/29 dev host",
		"ip -n " + d.router + " link set server up",
		"ip -n " + d.router + " link set host up",
		"ip -n " + d.host + " addr add " + d.net + "2/29 dev " + d.link,
		"ip -n " + d.host + " link set " + d.link + " up",
		"ip -n " + d.host + " route add default via " + d.net + "1",
		"ip route add " + d.net + "0/29 via " + d.net + "9",
	} {
		d.run(strings.Fields(command)...)
	}
	d.run("ip", "netns", "exec", d.router, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
	if out, err := exec.CommandContext(t.Context(), "ip", "netns", "exec", d.router, "nft", "add table ip dark").CombinedOutput(); err != nil {
		t.Fatalf("no packet filter here: %v\n%s", err, out)
	}
	d.nft("add chain ip dark pass { type filter hook forward priority 0; }")
	return d
}

func (d *darkness) run(argv ...string) string {
	d.t.Helper()
	out, err := exec.CommandContext(d.t.Context(), argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		d.t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
	return string(out)
}

func (d *darkness) nft(command string) string {
	d.t.Helper()
	return d.run("ip", "netns", "exec", d.router, "nft", command)
}

// fall drops one direction, or both, counting the packets with something in them.
func (d *darkness) fall(directions ...string) {
	d.t.Helper()
	commands := []string{"flush chain ip dark pass"}
	for _, direction := range directions {
		from := map[string]string{"requests": "host", "replies": "server"}[direction]
		commands = append(commands,
			"add rule ip dark pass iifname "+from+" tcp flags & psh == psh counter drop comment "+direction,
			"add rule ip dark pass iifname "+from+" drop")
	}
	d.nft(strings.Join(commands, "; "))
}

var counted = regexp.MustCompile(`counter packets (\d+).* comment "(\w+)"`)

// swallowed is how many packets with something in them were dropped.
func (d *darkness) swallowed(direction string) int {
	d.t.Helper()
	for _, m := range counted.FindAllStringSubmatch(d.nft("list chain ip dark pass"), -1) {
		if m[2] == direction {
			n, err := strconv.Atoi(m[1])
			pgtest.Must(d.t, err)
			return n
		}
	}
	d.t.Fatal("the packet filter has no rule of ours")
	return 0
}

func (d *darkness) lift() { d.t.Helper(); d.nft("flush chain ip dark pass") }

// move gives the host another address.
func (d *darkness) move() {
	d.t.Helper()
	d.run("ip", "-n", d.host, "addr", "flush", "dev", d.link)
	d.run("ip", "-n", d.host, "addr", "add", d.net+"3/29", "dev", d.link)
	d.run("ip", "-n", d.host, "route", "replace", "default", "via", d.net+"1")
}

// before is the host's address before it moved.
func (d *darkness) before() string { return d.net + "2" }

// server is one that the host can reach as well.
func (d *darkness) server(t *testing.T) *pgtest.Server {
	t.Helper()
	rules := pgtest.ReadableFile(t, fmt.Sprintf("local all all trust\nhost all all 127.0.0.1/32 trust\nhost all all %s0/29 trust\n", d.net))
	return pgtest.New(t, pgtest.Options{Settings: map[string]string{
		"listen_addresses": "'127.0.0.1, " + d.net + "10'",
		"hba_file":         "'" + rules + "'",
	}})
}

// inside makes a child one of the host's processes.
func (d *darkness) inside(w *world) func(*childSettings) {
	d.t.Helper()
	u, err := url.Parse(w.dsn)
	pgtest.Must(d.t, err)
	u.Host = net.JoinHostPort(d.net+"10", u.Port())
	return func(s *childSettings) {
		s.DSN, s.within = u.String(), []string{"ip", "netns", "exec", d.host}
	}
}
