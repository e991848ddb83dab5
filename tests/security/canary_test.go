package security

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/advisory"
	"github.com/pgmutex/pgmutex/internal/faultconn"
	"github.com/pgmutex/pgmutex/internal/pgtest"
	"github.com/pgmutex/pgmutex/lease"
)

// The password has characters that each way of writing it escapes in its own way;
// what is looked for are the parts in between.
const canary = `Canary1 @/?#Canary2%'\:Canary3`

// leaked finds a part of the password in a text.
func leaked(text string) bool { return strings.Contains(text, "Canary") }

// An output collects whatever a client says.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

// all shows an error as fmt can, and what it wraps.
func (o *output) all(err error) {
	for ; err != nil; err = errors.Unwrap(err) {
		fmt.Fprintf(o, "%v %+v %#v %T\n", err, err, err, err)
		if many, ok := err.(interface{ Unwrap() []error }); ok {
			for _, one := range many.Unwrap() {
				o.all(one)
			}
		}
	}
}

// options make a client that logs all that it can and whose events, of which all
// metrics and spans are made, are written down whole.
func (o *output) options(stale time.Duration) *pgmutex.Options {
	tell := func(ctx context.Context, e pgmutex.Event) { fmt.Fprintf(o, "%+v\n", e); o.all(e.Err) }
	return &pgmutex.Options{
		StaleAfter: stale, Heartbeat: 100 * time.Millisecond, ReleaseTimeout: time.Second,
		Logger: slog.New(slog.NewJSONHandler(o, &slog.HandlerOptions{Level: slog.LevelDebug, AddSource: true})),
		Hooks: []pgmutex.Hooks{{
			Waiting: tell, Acquired: tell, Contended: tell, TakenOver: tell, Failed: tell, Heartbeat: tell, Alert: tell,
			AlertCleared: tell, Lost: tell, Released: tell, ReleaseUnconfirmed: tell,
		}},
	}
}

// sources are the ways to hand over a password, each as a connection string and
// what the environment adds; addr replaces the server's.
func sources(t *testing.T, addr, user, database string) map[string]func(t *testing.T) string {
	t.Helper()
	host, port, _ := strings.Cut(addr, ":")
	file := filepath.Join(t.TempDir(), "pass")
	escaped := strings.NewReplacer(`\`, `\\`, ":", `\:`).Replace(canary)
	pgtest.Must(t, os.WriteFile(file, []byte("*:*:*:*:"+escaped+"\n"), 0o600))
	quoted := strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(canary)
	plain := fmt.Sprintf("host=%s port=%s user=%s dbname=%s sslmode=disable", host, port, user, database)
	return map[string]func(*testing.T) string{
		"URL": func(*testing.T) string {
			return (&url.URL{Scheme: "postgres", User: url.UserPassword(user, canary), Host: addr, Path: "/" + database, RawQuery: "sslmode=disable"}).String()
		},
		"keywords": func(*testing.T) string { return plain + " password='" + quoted + "'" },
		"PGPASSWORD": func(t *testing.T) string {
			t.Setenv("PGPASSWORD", canary)
			return plain
		},
		"PGPASSFILE": func(t *testing.T) string {
			t.Setenv("PGPASSFILE", file)
			return plain
		},
	}
}

// A password is in nothing that a program shows of us, whatever goes wrong. The
// command's own output and its process list are looked at in cmd/pgmutex.
func TestCanary(t *testing.T) {
	owner, database := tables(t)
	user := database + "_canary"
	server := pgtest.Shared(t)
	server.Role(t, user, canary)
	script, err := lease.SQL(nil, user)
	pgtest.Must(t, err)
	pgtest.Exec(t, owner, script)
	wrong := database + "_wrong"
	server.Role(t, wrong, "another")
	poor := database + "_poor"
	server.Role(t, poor, canary)
	mark := server.LogMark()
	proxy := faultconn.New(t, server.Addr())
	for way := range sources(t, "", "", "") {
		t.Run(way, func(t *testing.T) {
			o := &output{}
			dsn := func(addr, user, database string) string { return sources(t, addr, user, database)[way](t) }
			failed := 0
			for what, bad := range map[string]string{
				"wrong password": dsn(server.Addr(), wrong, database),
				"no database":    dsn(server.Addr(), user, "none"),
				"no rights":      dsn(server.Addr(), poor, database),
				"nobody listens": dsn("127.0.0.1:1", user, database),
				"no such host":   dsn("nohost.invalid:5432", user, database),
				"bad setting":    dsn(server.Addr(), user, database) + parameter(way, "sslmode", "nonsense"),
				"no TLS":         dsn(server.Addr(), user, database) + parameter(way, "sslmode", "require"),
				"bad port":       dsn("127.0.0.1:port", user, database),
				"bad lifetime":   dsn(server.Addr(), user, database) + parameter(way, "connect_timeout", "soon"),
				"no certificate": dsn(server.Addr(), user, database) + parameter(way, "sslrootcert", "/nowhere"),
			} {
				for _, open := range []func() (*pgmutex.Client, error){
					func() (*pgmutex.Client, error) { return lease.Open(t.Context(), bad, o.options(time.Second)) },
					func() (*pgmutex.Client, error) { return advisory.Open(t.Context(), bad, o.options(3*time.Second)) },
					func() (*pgmutex.Client, error) { return nil, lease.Migrate(t.Context(), bad, nil) },
					func() (*pgmutex.Client, error) { return nil, lease.Verify(t.Context(), bad, nil) },
					func() (*pgmutex.Client, error) {
						pool, err := pgxpool.New(t.Context(), bad)
						if err != nil {
							return nil, nil // that text is pgx's
						}
						defer pool.Close()
						return lease.Open(t.Context(), pool, o.options(time.Second))
					},
				} {
					c, err := open()
					if c != nil {
						pgtest.Must(t, c.Close(t.Context()))
					}
					if err != nil {
						failed++
					}
					o.all(err)
				}
				if failed == 0 {
					t.Errorf("vacuous: %s is no failure", what)
				}
			}
			good := dsn(proxy.Addr(), user, database)
			for name, open := range map[string]func() (*pgmutex.Client, error){
				"lease":    func() (*pgmutex.Client, error) { return lease.Open(t.Context(), good, o.options(time.Second)) },
				"advisory": func() (*pgmutex.Client, error) { return advisory.Open(t.Context(), good, o.options(3*time.Second)) },
			} {
				c, err := open()
				pgtest.Must(t, err)
				fmt.Fprintf(o, "%v %+v %s\n", c.HolderID(), c, name)
				o.failures(t, c, proxy, owner)
				pgtest.Must(t, c.Close(t.Context()))
			}
			o.mu.Lock()
			defer o.mu.Unlock()
			text := o.text.String()
			for _, expected := range []string{"28P01", "3D000", "lacks rights", "refused", `"level":"DEBUG"`, "Reason:"} {
				if !strings.Contains(text, expected) {
					t.Errorf("vacuous: %q is not in what was said", expected)
				}
			}
			for line := range strings.Lines(text) {
				if leaked(line) {
					t.Errorf("a part of the password: %s", line)
				}
			}
		})
	}
	if log := server.LogSince(mark); leaked(log) {
		t.Error("a part of the password is in the server's log")
	}
}

// parameter adds a setting to a connection string.
func parameter(way, name, value string) string {
	if way == "URL" {
		return "&" + name + "=" + value
	}
	return " " + name + "=" + value
}

// failures makes a client fail in all ways that need a connection, and looks at
// what the server shows meanwhile.
func (o *output) failures(t *testing.T, c *pgmutex.Client, proxy *faultconn.Proxy, owner string) {
	t.Helper()
	h, err := c.TryAcquire(t.Context(), "job")
	pgtest.Must(t, err)
	fmt.Fprintf(o, "%+v %+v\n", h.Info(), h)
	_, err = c.TryAcquire(t.Context(), "job")
	o.all(err)
	for _, what := range []string{"pg_stat_activity", "mutex_lock", "mutex_lock_waiter", "mutex_lock_event"} {
		for _, row := range pgtest.Column[string](t, owner, "SELECT r::text FROM "+what+" AS r") {
			fmt.Fprintln(o, row)
		}
	}
	proxy.Freeze(faultconn.Replies)
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	_, err = c.TryAcquire(short, "other")
	cancel()
	o.all(err)
	o.all(h.Heartbeat(short))
	proxy.Refuse(true)
	proxy.Cut()
	proxy.Thaw(faultconn.Replies)
	_, err = c.TryAcquire(t.Context(), "third")
	o.all(err)
	<-h.Context().Done() // within StaleAfter
	o.all(context.Cause(h.Context()))
	o.all(h.Release(t.Context()))
	proxy.Refuse(false)
}
