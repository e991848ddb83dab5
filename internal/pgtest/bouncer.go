package pgtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
)

// BouncerOptions describes a PgBouncer. The zero value trusts every user and
// keeps two server connections per database and user.
type BouncerOptions struct {
	// PoolSize is default_pool_size; 0 means 2, so that clients share soon.
	PoolSize int
	// Passwords, if set, are the users that may log in and their passwords, which
	// PgBouncer demands and passes on to the server.
	Passwords map[string]string
	// Settings are further lines of the [pgbouncer] section and win over the
	// package's own.
	Settings map[string]string
}

// Bouncer is a PgBouncer in front of a server, any database of it.
type Bouncer struct {
	dir     *scratch
	port    int
	process *process
}

// NewBouncer starts a PgBouncer in pool mode "transaction", "session" or
// "statement"; it is ended with the test. Start-up parameters that PgBouncer does
// not know are refused, as by default: ignore_startup_parameters is empty.
func NewBouncer(t testing.TB, s *Server, mode string, opts BouncerOptions) *Bouncer {
	t.Helper()
	b, err := runBouncer(t.Context(), s, mode, opts, progress(t.Log))
	if err != nil {
		t.Fatalf("start PgBouncer: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			text, _ := os.ReadFile(b.logPath())
			t.Logf("PgBouncer's log:\n%s", text[max(0, len(text)-4000):])
		}
		if err := b.close(); err != nil {
			t.Errorf("stop PgBouncer: %v", err)
		}
	})
	return b
}

func runBouncer(ctx context.Context, s *Server, mode string, opts BouncerOptions, p progress) (*Bouncer, error) {
	program, err := findBouncer(ctx, p)
	if err != nil {
		return nil, err
	}
	dir, err := newScratch("", s.dir.who)
	if err != nil {
		return nil, err
	}
	b := &Bouncer{dir: dir}
	for range 10 {
		if b.port, err = freePort(); err != nil {
			break
		}
		if err = b.configure(s, mode, opts); err != nil {
			break
		}
		b.process, err = dir.serve(ctx, "pgbouncer", b.Addr(), []string{program, dir.file("pgbouncer.ini")})
		if err == nil || !strings.Contains(err.Error(), inUse) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func findBouncer(ctx context.Context, p progress) (string, error) {
	return findProgram(ctx, []string{"pgbouncer", "/usr/sbin/pgbouncer", "/opt/homebrew/bin/pgbouncer"}, "pgbouncer", p)
}

func (b *Bouncer) configure(s *Server, mode string, opts BouncerOptions) error {
	settings := map[string]string{
		"listen_addr":               "127.0.0.1",
		"listen_port":               strconv.Itoa(b.port),
		"unix_socket_dir":           "",
		"pool_mode":                 mode,
		"default_pool_size":         strconv.Itoa(max(opts.PoolSize, 0)),
		"max_client_conn":           "500",
		"auth_type":                 "any",
		"admin_users":               Superuser,
		"ignore_startup_parameters": "",
		"server_reset_query":        "DISCARD ALL", // in session mode only, as by default
		"query_wait_timeout":        "20",
	}
	if opts.PoolSize == 0 {
		settings["default_pool_size"] = "2"
	}
	// With auth_type any the client's name counts for nothing, and a forced user
	// takes its place.
	database := fmt.Sprintf("* = host=%s port=%d", s.Host(), s.Port())
	if opts.Passwords == nil {
		database += " user=" + Superuser
	} else {
		settings["auth_type"] = "plain"
		settings["auth_file"] = b.dir.file("users")
		var users strings.Builder
		double := func(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
		for name, password := range opts.Passwords {
			fmt.Fprintln(&users, double(name), double(password))
		}
		if err := b.dir.write("users", users.String()); err != nil {
			return err
		}
	}
	maps.Copy(settings, opts.Settings)
	var ini strings.Builder
	fmt.Fprintf(&ini, "[databases]\n%s\n\n[pgbouncer]\n", database)
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&ini, "%s = %s\n", name, settings[name])
	}
	return b.dir.write("pgbouncer.ini", ini.String())
}

func (b *Bouncer) close() error {
	// SIGKILL: what SIGTERM means changed in version 1.23, and there is nothing to
	// lose.
	return errors.Join(b.process.end(syscall.SIGKILL), b.dir.remove())
}

func (b *Bouncer) logPath() string { return b.dir.file("pgbouncer.log") }

// Addr is where PgBouncer listens.
func (b *Bouncer) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(b.port)) }

// DSN leads a connection URL of the server through PgBouncer.
func (b *Bouncer) DSN(dsn string) string {
	u, err := url.Parse(dsn)
	if err != nil {
		panic("pgtest.Bouncer.DSN: " + err.Error())
	}
	u.Host = b.Addr()
	q := u.Query()
	q.Del("host")
	q.Del("port")
	u.RawQuery = q.Encode()
	return u.String()
}

// AdminDSN is PgBouncer's own console, which takes the simple protocol only; see
// [Bouncer.Admin].
func (b *Bouncer) AdminDSN() string {
	return "postgres://" + Superuser + "@" + b.Addr() + "/pgbouncer?sslmode=disable&default_query_exec_mode=simple_protocol"
}

// Admin gives PgBouncer a command: "RECONNECT", "PAUSE", "KILL mydb".
func (b *Bouncer) Admin(ctx context.Context, command string) error {
	conn, err := pgx.Connect(ctx, b.AdminDSN())
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, command)
	return errors.Join(err, conn.Close(ctx))
}
