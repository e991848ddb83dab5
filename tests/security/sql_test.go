package security

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/advisory"
	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/pgtest"
	"github.com/pgmutex/pgmutex/lease"
)

// hostile are texts that mean something in SQL, in one of its layers of quoting,
// or in what statements are made with here.
var hostile = []string{
	`'; DROP TABLE canary; --`,
	`"; DROP TABLE canary; --`,
	`\'; DROP TABLE canary; --`,
	`\\'; DROP TABLE canary; --`,
	`$1`, `$$; DROP TABLE canary; $$`, `$8; --`,
	`{{lock}}`, `{{token:literal}}'`,
	`/* `, ` */; --`, `-- `,
	`%s%n%(x)s`, `E'\047'`, `U&'\0027'`,
	`{"a": "b"}`, `{x,NULL,"}"}`, `a,b"c\`, `NULL`, `~`, `a~b~`,
	`ʼ＇'‘`, "\u2028'", `…🔒`,
}

// modes are the ways in which statements travel, and a server that reads
// backslashes in plain string constants. Every second text plays each part in a
// mode, beginning with the first or the second.
var modes = map[string]struct {
	begin      int
	parameters []string
}{
	"prepared":    {0, nil},
	"exec":        {1, []string{"default_query_exec_mode", "exec"}},
	"simple":      {0, []string{"default_query_exec_mode", "simple_protocol"}},
	"backslashes": {1, []string{"standard_conforming_strings", "off", "backslash_quote", "on"}},
}

// Names, labels, namespaces, details and reasons come back as they were given,
// from every engine and in every mode, and nothing else has happened.
func TestTextsAreTexts(t *testing.T) {
	t.Parallel()
	for mode, way := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			owner, _ := tables(t)
			pgtest.Exec(t, owner, "CREATE TABLE canary ()")
			dsn := pgtest.With(owner, way.parameters...)
			advisoryEngine := func() (engine.Engine, error) { return advisory.New(dsn, &advisory.Options{Table: "public.mutex_lock"}) }
			leaseEngine := func() (engine.Engine, error) { return lease.New(dsn, nil) }
			for name, engineOf := range map[string]func() (engine.Engine, error){"lease": leaseEngine, "advisory": advisoryEngine} {
				for i := way.begin; i < len(hostile); i += 2 {
					text := func(n int) string { return hostile[(i+n)%len(hostile)] }
					e, err := engineOf()
					pgtest.Must(t, err)
					opts := &pgmutex.Options{
						HolderID: text(0), Namespace: strings.ReplaceAll(text(1), "/", "|"),
						Annotate: func(context.Context) map[string]string { return map[string]string{text(2): text(3)} },
					}
					c, err := pgmutex.New(t.Context(), e, opts)
					if err != nil { // a label may be refused; a text never does anything
						opts.HolderID = "label"
						e, err = engineOf()
						pgtest.Must(t, err)
						c, err = pgmutex.New(t.Context(), e, opts)
					}
					pgtest.Must(t, err)
					roundTrip(t, c, name, opts.HolderID, text(4), map[string]string{text(2): text(3), text(5): text(6)}, text(7))
					pgtest.Must(t, c.Close(t.Context()))
				}
			}
			if n := pgtest.One[int64](t, owner, "SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"); n != 5 {
				t.Errorf("%d tables instead of 5", n)
			}
			if n := pgtest.One[int64](t, owner, "SELECT count(*) FROM mutex_lock"); n != 0 {
				t.Errorf("%d locks are left", n)
			}
		})
	}
}

func roundTrip(t *testing.T, c *pgmutex.Client, engineName, label, name string, details map[string]string, reason string) {
	t.Helper()
	h, err := c.With(pgmutex.AcquireOptions{Details: details}).TryAcquire(t.Context(), name)
	if err != nil {
		t.Errorf("%s: acquire %q: %v", engineName, name, err)
		return
	}
	seen, err := c.Inspect(t.Context(), name)
	if err != nil || seen.Name != name || seen.Holder != label {
		t.Errorf("%s: %q of %q: %+v, %v", engineName, name, label, seen, err)
	}
	if engineName == "lease" {
		got := maps.Collect(maps.All(seen.Details))
		for k, v := range details {
			if got[k] != v {
				t.Errorf("detail %q is %q, not %q", k, got[k], v)
			}
		}
	}
	pgtest.Must(t, h.Heartbeat(t.Context()))
	if engineName == "lease" {
		pgtest.Must(t, c.ForceRelease(t.Context(), seen, &pgmutex.ForceOptions{Now: true, Reason: reason}))
		for past, err := range c.History(t.Context(), name) {
			if err != nil || past.Reason != reason || past.By != label || past.Name != name {
				t.Errorf("history of %q: %+v, %v", name, past, err)
			}
			break
		}
		_ = h.Release(t.Context())
		return
	}
	pgtest.Must(t, h.Release(t.Context()))
}

// Names of tables and schemas and of roles are quoted wherever they are used.
func TestTablesAreIdentifiers(t *testing.T) {
	t.Parallel()
	for i, odd := range []string{`l'ock"; DROP TABLE canary; --`, `{{token}} $1 \`, `"`, `ä'"b`} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			owner := pgtest.Shared(t).Database(t)
			pgtest.Exec(t, owner, "CREATE TABLE canary ()")
			quote := func(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
			opts := &lease.Options{Table: quote("s "+odd) + "." + quote(odd)}
			reader := fmt.Sprintf(`identifiers %d '"; DROP TABLE canary; --`, i)
			pgtest.Shared(t).Role(t, reader, "secret")
			pgtest.Must(t, lease.Migrate(t.Context(), owner, opts))
			for _, purpose := range []string{"client", "guard", "viewer", "operator"} {
				script, err := lease.Grants(opts, reader, purpose)
				pgtest.Must(t, err)
				pgtest.Exec(t, owner, script)
			}
			dsn := pgtest.Shared(t).PasswordDSN(pgtest.One[string](t, owner, "SELECT current_database()::text"), reader, "secret")
			leases, err := lease.New(dsn, opts)
			pgtest.Must(t, err)
			tokens, err := advisory.New(dsn, &advisory.Options{Table: opts.Table})
			pgtest.Must(t, err)
			for name, e := range map[string]engine.Engine{"lease": leases, "advisory": tokens} {
				c, err := pgmutex.New(t.Context(), e, nil)
				pgtest.Must(t, err)
				roundTrip(t, closing(t, c), name, c.HolderID(), odd, nil, odd)
			}
			pgtest.Exec(t, owner, "SELECT * FROM canary")
		})
	}
}

// What cannot be stored as text is refused before anything is sent.
func TestTextsThatAreNone(t *testing.T) {
	t.Parallel()
	owner, _ := tables(t)
	c := open(t, owner, nil)
	for _, bad := range []string{"", "a\x00b", "a\nb", "\x1b[2J", "\xff", strings.Repeat("x", 65)} {
		if err := c.CheckName(bad); err == nil {
			t.Errorf("name %q is not refused", bad)
		}
		if _, err := c.TryAcquire(t.Context(), bad); err == nil {
			t.Errorf("name %q is acquired", bad)
		}
		if bad == "" || len(bad) > 64 {
			continue
		}
		if c, err := lease.Open(t.Context(), owner, &pgmutex.Options{HolderID: bad}); err == nil {
			closing(t, c)
			t.Errorf("label %q is not refused", bad)
		}
		if c, err := lease.Open(t.Context(), owner, &pgmutex.Options{Namespace: bad}); err == nil {
			closing(t, c)
			t.Errorf("namespace %q is not refused", bad)
		}
	}
}
