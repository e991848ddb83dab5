package store

import (
	"testing"

	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/exitcode"
)

func TestChoose(t *testing.T) {
	const pg = "postgres://h/db"
	for _, c := range []struct {
		name     string
		flags    Flags
		env      map[string]string
		terminal bool
		want     Choice
		code     int
	}{
		{name: "flag", flags: Flags{URL: pg, URLSet: true}, want: Choice{URL: pg, From: "--url"}},
		{name: "variable", env: map[string]string{"PGMUTEX_URL": pg}, want: Choice{URL: pg, From: "PGMUTEX_URL"}},
		{name: "flag beats variable", flags: Flags{URL: pg, URLSet: true}, env: map[string]string{"PGMUTEX_URL": "postgres://other", "PGHOST": "x"},
			want: Choice{URL: pg, From: "--url"}},
		{name: "variable beats libpq's", env: map[string]string{"PGMUTEX_URL": pg, "PGHOST": "x"}, want: Choice{URL: pg, From: "PGMUTEX_URL"}},
		{name: "host", env: map[string]string{"PGHOST": "x"}, want: Choice{From: "PGHOST"}},
		{name: "port", env: map[string]string{"PGPORT": "1"}, want: Choice{From: "PGPORT"}},
		{name: "database", env: map[string]string{"PGDATABASE": "x"}, want: Choice{From: "PGDATABASE"}},
		{name: "service", env: map[string]string{"PGSERVICE": "x"}, want: Choice{From: "PGSERVICE"}},
		{name: "address", env: map[string]string{"PGHOSTADDR": "1.2.3.4"}, want: Choice{From: "PGHOSTADDR"}},
		{name: "address beside host", env: map[string]string{"PGHOST": "x", "PGHOSTADDR": "1.2.3.4"}, want: Choice{From: "PGHOST"}},
		{name: "user and password alone", env: map[string]string{"PGUSER": "x", "PGPASSWORD": "x", "PGPASSFILE": "x"}, code: exitcode.NotConfigured},
		{name: "empty variables", env: map[string]string{"PGMUTEX_URL": "", "PGHOST": ""}, code: exitcode.NotConfigured},
		{name: "nothing", code: exitcode.NotConfigured},
		{name: "nothing on a terminal", terminal: true, want: Choice{Local: true, Guessed: true}},
		{name: "only an engine on a terminal", terminal: true, flags: Flags{Engine: Lease, EngineSet: true}, code: exitcode.NotConfigured},
		{name: "only a table on a terminal", terminal: true, flags: Flags{Table: "t", TableSet: true}, code: exitcode.NotConfigured},
		{name: "local", flags: Flags{LocalSet: true}, want: Choice{Local: true, From: "--local"}},
		{name: "local path", flags: Flags{LocalSet: true, Local: "/x"}, want: Choice{Local: true, Path: "/x", From: "--local"}},
		{name: "local beats variable", flags: Flags{LocalSet: true}, env: map[string]string{"PGMUTEX_URL": pg}, want: Choice{Local: true, From: "--local"}},
		{name: "local variable", env: map[string]string{"PGMUTEX_URL": "local:"}, want: Choice{Local: true, From: "PGMUTEX_URL"}},
		{name: "local variable with path", env: map[string]string{"PGMUTEX_URL": "local:/x y"}, want: Choice{Local: true, Path: "/x y", From: "PGMUTEX_URL"}},
		{name: "flag beats local variable", flags: Flags{URL: pg, URLSet: true}, env: map[string]string{"PGMUTEX_URL": "local:"}, want: Choice{URL: pg, From: "--url"}},
		{name: "local and url", flags: Flags{LocalSet: true, URL: pg, URLSet: true}, code: exitcode.Usage},
		{name: "local and engine", flags: Flags{LocalSet: true, Engine: Lease, EngineSet: true}, code: exitcode.Usage},
		{name: "local and table", flags: Flags{LocalSet: true, Table: "t", TableSet: true}, code: exitcode.Usage},
		{name: "local variable and engine", flags: Flags{Engine: Lease, EngineSet: true}, env: map[string]string{"PGMUTEX_URL": "local:"}, code: exitcode.Usage},
		{name: "empty url", flags: Flags{URLSet: true}, env: map[string]string{"PGMUTEX_URL": pg}, code: exitcode.Usage},
		{name: "unknown engine", flags: Flags{Engine: "x", EngineSet: true, URL: pg, URLSet: true}, code: exitcode.Usage},
		{name: "engine", flags: Flags{Engine: Advisory, EngineSet: true, URL: pg, URLSet: true}, want: Choice{URL: pg, From: "--url", Engine: Advisory}},
		{name: "table", flags: Flags{Table: "t", TableSet: true, URL: pg, URLSet: true}, want: Choice{URL: pg, From: "--url", Table: "t"}},
		{name: "password on the command line", flags: Flags{URL: "postgres://u:p@h/db", URLSet: true},
			want: Choice{URL: "postgres://u:p@h/db", From: "--url", PasswordShown: true}},
		{name: "password in the environment", env: map[string]string{"PGMUTEX_URL": "postgres://u:p@h/db"},
			want: Choice{URL: "postgres://u:p@h/db", From: "PGMUTEX_URL"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Choose(c.flags, func(name string) string { return c.env[name] }, c.terminal)
			if code := exitcode.Of(err); code != c.code {
				t.Fatalf("code %d, want %d (%v)", code, c.code, err)
			}
			if c.want.Engine == "" {
				c.want.Engine = Lease
			}
			if err == nil && got != c.want {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestHasPassword(t *testing.T) {
	for dsn, want := range map[string]bool{
		"postgres://u:p@h/db":               true,
		"postgres://u:p@ss@h/db":            true,
		"postgres://u:8F%f&eL@h/db":         true,
		"postgres://h/db?user=u&password=p": true,
		"host=h password=p":                 true,
		"host=h password = 'a b'":           true,
		"password=p":                        true,
		"postgres://u@h:5432/db":            false,
		"postgres://h/db":                   false,
		"host=h user=u":                     false,
		"host=h password=":                  false,
		"":                                  false,
	} {
		if got := hasPassword(dsn); got != want {
			t.Errorf("%q: %v", dsn, got)
		}
	}
}
