//go:build netns

package advisory_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// TestHostGone lets the holder's host vanish: it is a network namespace, joined to
// the server's by a pair of interfaces, and from one moment on every packet in
// either direction is dropped without a word. The next holder comes within the
// session lease and a second, and the old one had stopped before.
//
// It needs root and iproute2, and fails without them: it has a build tag.
func TestHostGone(t *testing.T) {
	const lease = 3 * time.Second
	host := newHost(t)
	server := pgtest.New(t, pgtest.Options{Settings: map[string]string{
		"listen_addresses": "'127.0.0.1, " + host.outside + "'",
		"hba_file":         "'" + host.rules(t) + "'",
	}})
	dsn := server.Database(t)
	b := open(t, dsn, "b", pgmutex.Options{PollInterval: 10 * time.Millisecond})
	for i := range 4 {
		h := take(t, open(t, host.pool(t, dsn), fmt.Sprint("a-", i), pgmutex.Options{StaleAfter: lease}), "x")
		time.Sleep(time.Duration(i) * lease / 10) //nolint:forbidigo // any moment between two pings
		pgtest.Must(t, h.Err())
		if i == 3 { // with answers under way that nobody acknowledges
			host.deafen(t)
			time.Sleep(lease / 5) //nolint:forbidigo // until one is under way
		}
		deadline := h.Deadline()
		gone := time.Now()
		host.vanish(t)
		got, err := b.Acquire(t.Context(), "x")
		stillHeld := h.Held() // before anything else
		granted := time.Now()
		pgtest.Must(t, err)
		if stillHeld {
			t.Error("two believe that they hold the lock")
		}
		if granted.Before(deadline) {
			t.Error("the server gave the lock away before the holder's deadline")
		}
		if took := granted.Sub(gone); took > lease+time.Second {
			t.Errorf("the next holder came after %v, with a session lease of %v", took, lease)
		} else {
			t.Logf("the next holder came after %v", took)
		}
		after(t, h.Context().Done(), "the holder to be told")
		matches(t, h.Err(), pgmutex.ErrLost)
		pgtest.Must(t, got.Release(t.Context()))
		host.comeBack(t)
	}
}

// A host is a network namespace with a link to ours.
type host struct {
	namespace       string
	here, there     string // the interfaces
	outside, inside string // their addresses
}

func newHost(t *testing.T) *host {
	id := os.Getpid() % 10000
	h := &host{
		namespace: fmt.Sprint("pgmutex-", id), here: fmt.Sprint("pgm-h-", id), there: fmt.Sprint("pgm-t-", id),
		outside: fmt.Sprintf("198.18.%d.1", id%256), inside: fmt.Sprintf("198.18.%d.2", id%256),
	}
	h.ip(t, "netns", "add", h.namespace)
	t.Cleanup(func() { // the interfaces go with it
		if out, err := exec.Command("ip", "netns", "del", h.namespace).CombinedOutput(); err != nil {
			t.Errorf("remove %s: %v\n%s", h.namespace, err, out)
		}
	})
	h.ip(t, "link", "add", h.here, "type", "veth", "peer", "name", h.there, "netns", h.namespace)
	h.ip(t, "addr", "add", h.outside+"/30", "dev", h.here)
	h.ip(t, "link", "set", h.here, "up")
	h.ip(t, "-n", h.namespace, "addr", "add", h.inside+"/30", "dev", h.there)
	h.ip(t, "-n", h.namespace, "link", "set", h.there, "up")
	return h
}

func (h *host) ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("this test needs root and iproute2: ip %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// vanish drops every packet: each side sends to an Ethernet address that nobody has.
func (h *host) vanish(t *testing.T) {
	t.Helper()
	const nobody = "02:00:00:00:00:01"
	h.ip(t, "neigh", "replace", h.inside, "lladdr", nobody, "nud", "permanent", "dev", h.here)
	h.ip(t, "-n", h.namespace, "neigh", "replace", h.outside, "lladdr", nobody, "nud", "permanent", "dev", h.there)
}

// deafen drops every packet to the host alone.
func (h *host) deafen(t *testing.T) {
	t.Helper()
	h.ip(t, "neigh", "replace", h.inside, "lladdr", "02:00:00:00:00:01", "nud", "permanent", "dev", h.here)
}

func (h *host) comeBack(t *testing.T) {
	t.Helper()
	h.ip(t, "neigh", "del", h.inside, "dev", h.here)
	h.ip(t, "-n", h.namespace, "neigh", "del", h.outside, "dev", h.there)
}

// rules is a file of rules for logging in from the host as well.
func (h *host) rules(t *testing.T) string {
	t.Helper()
	return pgtest.ReadableFile(t, fmt.Sprintf("local all all trust\nhost all all 127.0.0.1/32 trust\nhost all all %s/32 trust\n", h.inside))
}

// pool reaches the server from the host: a socket stays in the namespace in which it
// was made.
func (h *host) pool(t *testing.T, dsn string) *pgxpool.Pool {
	t.Helper()
	u, err := url.Parse(dsn)
	pgtest.Must(t, err)
	u.Host = net.JoinHostPort(h.outside, u.Port())
	config, err := pgxpool.ParseConfig(u.String())
	pgtest.Must(t, err)
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread() // for good: the thread ends with the goroutine
			if err = enter(h.namespace); err == nil {
				conn, err = new(net.Dialer).DialContext(ctx, network, addr)
			}
		}()
		<-done
		return conn, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	pgtest.Must(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// enter moves the calling thread into a network namespace.
func enter(namespace string) error {
	f, err := os.Open("/run/netns/" + namespace)
	if err != nil {
		return err
	}
	defer f.Close()
	setns := map[string]uintptr{"amd64": 308, "arm64": 268, "riscv64": 268}[runtime.GOARCH]
	if setns == 0 {
		return fmt.Errorf("the number of setns on %s is not known here", runtime.GOARCH)
	}
	if _, _, errno := syscall.RawSyscall(setns, f.Fd(), syscall.CLONE_NEWNET, 0); errno != 0 {
		return fmt.Errorf("enter %s: %w", namespace, errno)
	}
	return nil
}
