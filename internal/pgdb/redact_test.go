package pgdb

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// leaks reports every piece of secret that is in text: what stands between the
// characters at which parsers cut, single letters excepted.
func leaks(text, secret string) (found []string) {
	for piece := range strings.FieldsFuncSeq(secret, func(r rune) bool {
		return strings.ContainsRune("@#%&/ ?=:,", r)
	}) {
		if len(piece) > 1 && strings.Contains(text, piece) {
			found = append(found, piece)
		}
	}
	return found
}

// allText is what can be got out of an error: its text and those of all errors
// that it wraps.
func allText(err error) string {
	text := fmt.Sprintf("%v %+v\n", err, err)
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		for _, below := range e.Unwrap() {
			text += allText(below)
		}
	case interface{ Unwrap() error }:
		if below := e.Unwrap(); below != nil {
			text += allText(below)
		}
	}
	return text
}

// A password never shows up, however wrongly it is written into the string and
// wherever the attempt fails.
func TestPasswordsStaySecret(t *testing.T) {
	port := closedPort(t)
	passwords := []string{
		"qp@zzss", "qa#zzb", "8F%f&eLzz", "qs3c/zzret", "61777/zzret", "61778/qr?zz=9", "qa zzb", "qa zzb=cc", "qa?zzb", "qa:zzb", "hunter2zz", "qa'zzb",
		`qa\zzb`, "9q1,9q2@zz", "qp@zz/xx", "qp@zz?xx=1", "[qzz", "qzz%00", "qq%zz", "ünizzcode", "qq&zzword=x",
	}
	forms := []func(string) string{
		func(p string) string { return fmt.Sprintf("postgres://u:%s@127.0.0.1:%d/db", p, port) },
		func(p string) string { return fmt.Sprintf("postgresql://u:%s@127.0.0.1,localhost:%d/db", p, port) },
		func(p string) string { return fmt.Sprintf("postgres://u:%s@127.0.0.1:%d/db?sslmode=disable", p, port) },
		func(p string) string { return fmt.Sprintf("postgres://u@127.0.0.1:%d/db?password=%s", port, p) },
		func(p string) string { return fmt.Sprintf("postgresqsl://u:%s@127.0.0.1:%d/db", p, port) },
		func(p string) string { return fmt.Sprintf("postgresqsl://u:%s@127.0.0.1/db?sslmode=disable", p) },
		func(p string) string { return fmt.Sprintf(" postgres://u:%s@127.0.0.1/db?sslmode=disable", p) },
		func(p string) string { return fmt.Sprintf("postgres:/u:%s@127.0.0.1/db", p) },
		func(p string) string {
			return fmt.Sprintf("host=127.0.0.1 port=%d user=u password=%s dbname=db", port, p)
		},
		func(p string) string {
			return fmt.Sprintf("password=%s host=127.0.0.1 user=u dbname=db port=%d", p, port)
		},
		func(p string) string {
			return fmt.Sprintf("host=127.0.0.1 port=%d user=u dbname=db password=%s", port, p)
		},
		func(p string) string {
			return fmt.Sprintf("host=127.0.0.1 port=%d user=u dbname=db password='%s'", port, p)
		},
		func(p string) string { return fmt.Sprintf("u:%s@127.0.0.1/db", p) },
	}
	for _, password := range passwords {
		for _, form := range forms {
			dsn := form(password)
			var log strings.Builder
			db, err := Open(dsn, Options{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
			text := ""
			if err == nil {
				text = db.Address()
				err = db.Check(t.Context())
				if err == nil {
					t.Fatalf("%s: connected", dsn)
				}
				wantClass(t, err, NotSent)
				shut(t, db)
			}
			text += allText(err) + log.String()
			if found := leaks(text, password); len(found) > 0 {
				t.Errorf("DSN %s\nshows %q\nin %s", dsn, found, text)
			}
		}
	}
}

// The same, where the server answers and quotes what it was sent.
func TestPasswordsStaySecretFromTheServer(t *testing.T) {
	s := pgtest.Shared(t)
	for _, dsn := range []string{
		fmt.Sprintf("host=%s port=%d user=postgres password=aa qqzz=hunter2 dbname=postgres", s.Host(), s.Port()),
		fmt.Sprintf("postgres://postgres@%s/postgres?qqzz=hunter2", s.Addr()),
	} {
		db := open(t, dsn, Options{})
		err := db.Check(t.Context())
		wantClass(t, err, NotSent)
		if found := leaks(allText(err), "qqzz@hunter2"); len(found) > 0 {
			t.Errorf("DSN %s shows %q in %v", dsn, found, err)
		}
		wantText(t, err.Error(), "42704")
	}
}

// Settings that are escaped as they should be work, and a failure tells enough
// to act on.
func TestConnectErrors(t *testing.T) {
	s := pgtest.Shared(t)
	s.Role(t, "redact_app", "p@ss w%rd/")
	good := s.PasswordDSN("postgres", "redact_app", "p@ss w%rd/")
	if err := open(t, good, Options{}).Check(t.Context()); err != nil {
		t.Errorf("an escaped password: %v", err)
	}
	quoted := fmt.Sprintf(`host=%s port=%d user=redact_app password='p@ss w%%rd/' dbname=postgres`, s.Host(), s.Port())
	if err := open(t, quoted, Options{}).Check(t.Context()); err != nil {
		t.Errorf("a quoted password: %v", err)
	}
	wrong := s.PasswordDSN("postgres", "redact_app", "hunter2")
	err := open(t, wrong, Options{}).Check(t.Context())
	wantText(t, err.Error(), "check: cannot connect to ", s.Addr(), "/postgres", "redact_app", "28P01")
	if strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
	missing := s.DSN("nosuchdb", pgtest.Superuser)
	err = open(t, missing, Options{}).Check(t.Context())
	wantText(t, err.Error(), "nosuchdb", "3D000")
	if got := SQLState(err); got != "3D000" {
		t.Errorf("SQLState = %q", got)
	}
	refused := fmt.Sprintf("postgres://u@127.0.0.1:%d/db", closedPort(t))
	err = open(t, refused, Options{}).Check(t.Context())
	wantText(t, err.Error(), "127.0.0.1", "connection refused")
	if strings.Count(err.Error(), "refused") != 1 {
		t.Errorf("the same reason is given twice: %v", err)
	}
}

func TestOpenRefusals(t *testing.T) {
	for dsn, want := range map[string]string{
		"postgres://u:p@ss@h/db":                   "@",
		"postgres://u:p%zz@h/db":                   "%25",
		"postgres://u:s3c/ret@h/db":                "@",
		"postgres://u@h:port/db":                   "port is not a number",
		"postgres://u@h/db?sslmode":                "name=value",
		"postgres://u@h:1,h2:2,h3/db?port=1,2":     "as many ports as hosts",
		"postgres://u@h/db?sslmode=never":          "sslmode",
		"postgres://u@h/db?target_session_attrs=x": "target_session_attrs",
		"mysql://u@h/db":                           "postgres://",
		"host=h password=a b":                      "single quotes",
		"host=h password='a b":                     "no end",
		"host=h\x00":                               "NUL",
		"host=a@b":                                 "host name",
	} {
		_, err := Open(dsn, Options{})
		if err == nil {
			t.Errorf("Open(%q) succeeded", dsn)
			continue
		}
		wantText(t, err.Error(), want)
	}
}

// What is legal, if unusual, is not refused.
func TestOpenAccepts(t *testing.T) {
	for _, dsn := range []string{
		"",
		"postgres://",
		"postgres:///db",
		"postgres://h",
		"postgres://u:a#b@h/db",
		"postgres://u:a?b@h/db",
		"postgres://u:a:b@h/db",
		"postgres://u%40tenant:p%40ss@h/db",
		"postgres://u@h1:1,h2:2/db?target_session_attrs=read-write",
		"postgres://u@[::1]:5432/db",
		"postgres://%2Fvar%2Frun%2Fpostgresql/db?user=u",
		"postgres:///db?host=/var/run/postgresql&user=me@server",
		"postgres://u@h/db?pool_max_conns=3&application_name=a@b",
		"host=/tmp user=u dbname=db",
		"host=h password='a b' user = u",
		`host=h password='a\'b\\'`,
		`host=h password=a\ b user=u`,
		"host=h password=a@b",
	} {
		if err := checkDSN(dsn); err != nil {
			t.Errorf("%q: %v", dsn, err)
		}
		db, err := Open(dsn, Options{})
		if err != nil {
			t.Errorf("Open(%q): %v", dsn, err)
			continue
		}
		shut(t, db)
	}
}

// A string that this package lets pass is one that pgx understands in the same
// way: its password is where we looked for it.
func FuzzCheckDSN(f *testing.F) {
	f.Add("u", "p@ss", "h", "db")
	f.Add("u:x", "a/b?c", "h:1", "d/b")
	f.Fuzz(func(t *testing.T, user, password, host, database string) {
		dsn := "postgres://" + url.PathEscape(user) + ":" + password + "@" + host + "/" + database
		if checkDSN(dsn) != nil {
			return
		}
		config, err := pgx.ParseConfig(dsn)
		if err != nil || checkConfig(config) != nil {
			return
		}
		if strings.Contains(config.Host, "@") || strings.Contains(config.Database, "@") && !strings.Contains(database, "%40") {
			t.Errorf("%q: host %q, database %q", dsn, config.Host, config.Database)
		}
	})
}

func TestAddress(t *testing.T) {
	for dsn, want := range map[string]string{
		"postgres://u:p@h:1,h2:2/db?sslmode=prefer": "h:1,h2:2/db",
		"postgres://u:p@h":                          "h:5432/u",
		"host=/tmp user=u dbname=db":                "/tmp:5432/db",
	} {
		t.Setenv("PGDATABASE", "")
		db := open(t, dsn, Options{})
		if got := db.Address(); got != want {
			t.Errorf("Address of %q = %q, want %q", dsn, got, want)
		}
	}
}

// The resolver's errors quote what they were asked for.
func TestResolverErrors(t *testing.T) {
	config, err := pgx.ParseConfig("postgres://u@known/db")
	pgtest.Must(t, err)
	for _, notFound := range []bool{true, false} {
		err := connectError(t.Context(), config, trust{}, &net.DNSError{Err: "bad zz", Name: "qqzz", Server: "zz", IsNotFound: notFound})
		wantText(t, err.Error(), "host name")
		if text := allText(err); strings.Contains(text, "zz") || strings.Contains(text, "known") {
			t.Error(text)
		}
	}
}

// An IPv6 host keeps its brackets, and the context's end is told as such.
func TestConnectErrorContext(t *testing.T) {
	config, err := pgx.ParseConfig("postgres://u@[::1]:5/db")
	pgtest.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = connectError(ctx, config, trust{names: true, server: true}, &net.OpError{Op: "dial", Err: context.Canceled})
	wantIs(t, err, context.Canceled)
	wantClass(t, err, NotSent)
	wantText(t, err.Error(), "[::1]:5/db")
}

// closedPort is a port that nobody listens on.
func closedPort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	pgtest.Must(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
