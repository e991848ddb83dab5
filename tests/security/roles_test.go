package security

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/advisory"
	"github.com/pgmutex/pgmutex/internal/pgtest"
	"github.com/pgmutex/pgmutex/lease"
)

// What the API allows to a client, a viewer and an operator. What is refused
// matches fs.ErrPermission and says which right is missing.
func TestRolesUseTheLibrary(t *testing.T) {
	t.Parallel()
	owner, database := tables(t)
	root := open(t, owner, nil)
	all := []string{"client", "viewer", "operator"}
	clients := map[string]*pgmutex.Client{}
	for _, purpose := range all {
		dsn := role(t, owner, database, purpose)
		clients[purpose] = open(t, dsn, nil)
		if err := lease.Verify(t.Context(), dsn, nil); (err == nil) != (purpose == "client") {
			t.Errorf("whether a %s can take locks: %v", purpose, err)
		}
	}
	// held is a lock of somebody else's, shown to c.
	held := func(c *pgmutex.Client) (pgmutex.Status, *pgmutex.Hold, error) {
		h, err := root.Acquire(t.Context(), "held")
		pgtest.Must(t, err)
		seen, err := c.Inspect(t.Context(), "held")
		return seen, h, err
	}
	for _, op := range []struct {
		name string
		may  []string
		do   func(c *pgmutex.Client) error
	}{
		{"take and give back", []string{"client"}, func(c *pgmutex.Client) error {
			return c.TryDo(t.Context(), "mine", func(ctx context.Context) error {
				h, _ := pgmutex.FromContext(ctx)
				return h.Heartbeat(ctx)
			})
		}},
		{"take over", []string{"client"}, func(c *pgmutex.Client) error {
			pgtest.Exec(t, owner, `INSERT INTO mutex_lock (lock_name, instance_id, last_heartbeat, acquired_at)
				VALUES ('stale', 'dead', now() - interval '1 h', now() - interval '1 h') ON CONFLICT DO NOTHING`)
			return c.TryDo(t.Context(), "stale", func(context.Context) error { return nil })
		}},
		{"wait", []string{"client"}, func(c *pgmutex.Client) error {
			_, h, err := held(c)
			pgtest.Must(t, err)
			defer func() { pgtest.Must(t, h.Release(t.Context())) }()
			err = c.With(pgmutex.AcquireOptions{Wait: 300 * time.Millisecond}).
				Do(t.Context(), "held", func(context.Context) error { return nil })
			if errors.Is(err, pgmutex.ErrHeld) {
				return nil // it waited
			}
			return err
		}},
		{"list", all, func(c *pgmutex.Client) error {
			_, h, err := held(c)
			defer func() { pgtest.Must(t, h.Release(t.Context())) }()
			n := 0
			for _, failed := range c.List(t.Context()) {
				n++
				err = errors.Join(err, failed)
			}
			if n == 0 {
				return errors.New("nothing is listed")
			}
			return err
		}},
		{"history", all, func(c *pgmutex.Client) error {
			pgtest.Must(t, root.Do(t.Context(), "past", func(context.Context) error { return nil }))
			for _, err := range c.History(t.Context(), "past") {
				return err
			}
			return errors.New("no history")
		}},
		{"ask to stop", []string{"client", "operator"}, func(c *pgmutex.Client) error {
			seen, h, err := held(c)
			pgtest.Must(t, err)
			err = c.ForceRelease(t.Context(), seen, &pgmutex.ForceOptions{Reason: "test"})
			if err == nil {
				pgtest.WaitFor(t, "the holder to be told", func() bool { return !h.Held() })
			}
			_ = h.Release(t.Context())
			return err
		}},
		{"end now", []string{"client", "operator"}, func(c *pgmutex.Client) error {
			seen, h, err := held(c)
			pgtest.Must(t, err)
			err = c.ForceRelease(t.Context(), seen, &pgmutex.ForceOptions{Now: true, Reason: "test"})
			if rows := pgtest.One[int64](t, owner, "SELECT count(*) FROM mutex_lock WHERE lock_name = 'held'"); (rows == 0) != (err == nil) {
				t.Errorf("%d rows, and the answer %v", rows, err)
			}
			_ = h.Release(t.Context())
			return err
		}},
	} {
		for _, purpose := range all {
			err := op.do(clients[purpose])
			switch {
			case slices.Contains(op.may, purpose):
				if err != nil {
					t.Errorf("%s as %s: %v", op.name, purpose, err)
				}
			case !errors.Is(err, fs.ErrPermission):
				t.Errorf("%s as %s is not refused: %v", op.name, purpose, err)
			case !strings.Contains(err.Error(), "GRANT"):
				t.Errorf("%s as %s: the refusal does not say what is missing: %v", op.name, purpose, err)
			case errors.Is(err, pgmutex.ErrHeld), errors.Is(err, pgmutex.ErrUnknown):
				t.Errorf("%s as %s: a refusal is taken for another outcome: %v", op.name, purpose, err)
			}
		}
	}
	for _, purpose := range []string{"guard", ""} {
		c, err := lease.Open(t.Context(), role(t, owner, database, purpose), nil)
		if err == nil {
			closing(t, c)
		}
		if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "GRANT") {
			t.Errorf("a client with the rights %q: %v", purpose, err)
		}
	}
}

// A transaction of a role that has the guard's rights alone is guarded by the hold
// of a client.
func TestGuardAsAnotherRole(t *testing.T) {
	t.Parallel()
	owner, database := tables(t)
	c := open(t, role(t, owner, database, "client"), nil)
	guarded, err := pgxpool.New(t.Context(), role(t, owner, database, "guard"))
	pgtest.Must(t, err)
	t.Cleanup(guarded.Close)
	pgtest.Must(t, c.Do(t.Context(), "job", func(ctx context.Context) error {
		guard := func() error {
			return pgx.BeginFunc(ctx, guarded, func(tx pgx.Tx) error { return lease.Guard(ctx, tx) })
		}
		if err := guard(); err != nil {
			t.Errorf("held: %v", err)
		}
		pgtest.Exec(t, owner, "UPDATE mutex_lock SET instance_id = 'thief'")
		if err := guard(); !errors.Is(err, pgmutex.ErrNotHeld) {
			t.Errorf("taken over: %v", err)
		}
		pgtest.Exec(t, owner, "UPDATE mutex_lock SET instance_id = promised_by")
		return nil
	}))
}

// What each role can do to others by statements of its own: the table in
// docs/security.md.
func TestWhatRightsAllow(t *testing.T) {
	t.Parallel()
	owner, database := tables(t)
	pgtest.Exec(t, owner, `INSERT INTO mutex_lock (lock_name, instance_id, last_heartbeat, acquired_at) VALUES ('job', 'x', now(), now())`)
	purposes := []string{"", "guard", "viewer", "operator", "client"}
	conns := map[string]*pgx.Conn{}
	for _, p := range purposes {
		conns[p] = pgtest.Conn(t, role(t, owner, database, p))
	}
	const denied, checked = "42501", "23514"
	for _, c := range []struct {
		sql   string
		may   []string
		state string // of the refusal
	}{
		{"NOTIFY pgmutex_anything", purposes, ""},
		{"SELECT pg_advisory_lock(1), pg_advisory_unlock(1)", purposes, ""},
		{"SELECT * FROM mutex_lock, mutex_lock_waiter, mutex_lock_event", []string{"viewer", "operator", "client"}, denied},
		{"SELECT lock_name, instance_id FROM mutex_lock", []string{"guard", "viewer", "operator", "client"}, denied},
		{"SELECT lock_name FROM mutex_lock FOR UPDATE", []string{"guard", "operator", "client"}, denied},
		{"UPDATE mutex_lock SET locked = 1", []string{"guard", "client"}, denied},
		{"UPDATE mutex_lock SET stop_at = now()", []string{"operator", "client"}, denied},
		{"UPDATE mutex_lock SET instance_id = 'me'", []string{"client"}, denied},
		{"UPDATE mutex_lock SET last_heartbeat = 'infinity'", []string{"client"}, denied},
		{"INSERT INTO mutex_lock SELECT 'new', 1, 'me', now(), now()", []string{"client"}, denied},
		{"DELETE FROM mutex_lock", []string{"operator", "client"}, denied},
		{"INSERT INTO mutex_lock_event (lock_name, instance_id, acquired_at, ended_at, how) VALUES ('a', 'b', now(), now(), 'released')",
			[]string{"operator", "client"}, denied},
		{"DELETE FROM mutex_lock_event", []string{"client"}, denied},
		{"UPDATE mutex_lock_event SET ended_by = 'somebody'", nil, denied},
		{"DELETE FROM mutex_lock_waiter", []string{"client"}, denied},
		{"UPDATE mutex_lock_waiter SET offered_at = now()", []string{"operator", "client"}, denied},
		{"SELECT nextval('mutex_lock_token')", []string{"client"}, denied},
		{"SELECT setval('mutex_lock_token', 1)", []string{"client"}, denied},
		{"UPDATE mutex_lock_meta SET timeline = 0", []string{"client"}, denied},
		{"TRUNCATE mutex_lock", nil, denied},
		{"DROP TABLE mutex_lock", nil, denied},
		{"ALTER TABLE mutex_lock ADD COLUMN x int", nil, denied},
		{"CREATE TRIGGER t AFTER DELETE ON mutex_lock EXECUTE FUNCTION suppress_redundant_updates_trigger()", nil, denied},
	} {
		for _, p := range purposes {
			state := try(t, conns[p], c.sql)
			switch may := slices.Contains(c.may, p); {
			case may && state != "":
				t.Errorf("%q may not: %s (%s)", p, c.sql, state)
			case !may && state != c.state:
				t.Errorf("%q: %s: SQLSTATE %q", p, c.sql, state)
			}
		}
	}
	if state := try(t, conns["guard"], "UPDATE mutex_lock SET locked = 2"); state != checked {
		t.Errorf("the guard's column has another value: SQLSTATE %q", state)
	}
}

// try runs a statement, takes it back, and returns its SQLSTATE.
func try(t *testing.T, conn *pgx.Conn, sql string) string {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	pgtest.Must(t, err)
	defer func() { pgtest.Must(t, tx.Rollback(t.Context())) }()
	_, err = tx.Exec(t.Context(), sql)
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return refused.Code
	}
	pgtest.Must(t, err)
	return ""
}

// The advisory engine needs no right at all but to connect, and ending another
// role's session needs pg_signal_backend.
func TestAdvisoryRoles(t *testing.T) {
	t.Parallel()
	owner, database := tables(t)
	as := func(purpose string) *pgmutex.Client {
		c, err := advisory.Open(t.Context(), role(t, owner, database, purpose), &pgmutex.Options{HolderID: "label" + purpose})
		pgtest.Must(t, err)
		return closing(t, c)
	}
	nobody, operator := as(""), as("operator")
	h, err := nobody.TryAcquire(t.Context(), "job")
	pgtest.Must(t, err)
	if _, err := operator.TryAcquire(t.Context(), "job"); !errors.Is(err, pgmutex.ErrHeld) {
		t.Errorf("held by another role: %v", err)
	}
	seen, err := operator.Inspect(t.Context(), "job")
	pgtest.Must(t, err)
	if err := operator.ForceRelease(t.Context(), seen, &pgmutex.ForceOptions{Now: true}); !errors.Is(err, fs.ErrPermission) || !h.Held() {
		t.Errorf("without the right: %v, held %v", err, h.Held())
	}
	// A request to stop is a notification, which every role may send.
	asked, err := nobody.TryAcquire(t.Context(), "asked")
	pgtest.Must(t, err)
	pgtest.Exec(t, role(t, owner, database, "viewer"), `SELECT pg_notify('pgmutex_stop_' || pid, $1::bigint || ' forger') FROM pg_locks
		WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND ((classid::bigint << 32) | objid::bigint) = $1`, pgmutex.AdvisoryID("asked"))
	pgtest.WaitFor(t, "the holder to be told", func() bool { return !asked.Held() })
	var lost *pgmutex.LostError
	if !errors.As(asked.Err(), &lost) || lost.Reason() != pgmutex.LostReleased || lost.By() != "forger" {
		t.Errorf("asked to stop: %v", asked.Err())
	}
	pgtest.Exec(t, owner, "GRANT pg_signal_backend TO "+pgx.Identifier{database + "_operator"}.Sanitize())
	// What it may see of the session has changed, so it looks again.
	seen, err = operator.Inspect(t.Context(), "job")
	pgtest.Must(t, err)
	pgtest.Must(t, operator.ForceRelease(t.Context(), seen, &pgmutex.ForceOptions{Now: true}))
	pgtest.WaitFor(t, "the holder to be told", func() bool { return !h.Held() })
}

// A lock whose token is refused is given back: the server keeps it although the
// statement that took it has failed.
func TestAdvisoryTokensAreRefused(t *testing.T) {
	t.Parallel()
	owner, database := tables(t)
	dsn := role(t, owner, database, "client")
	e, err := advisory.New(dsn, &advisory.Options{Table: "public.mutex_lock"})
	pgtest.Must(t, err)
	c, err := pgmutex.New(t.Context(), e, nil)
	pgtest.Must(t, err)
	closing(t, c)
	beside, err := c.TryAcquire(t.Context(), "beside")
	pgtest.Must(t, err)
	pgtest.Exec(t, owner, "REVOKE ALL ON SEQUENCE mutex_lock_token FROM "+pgx.Identifier{database + "_client"}.Sanitize())
	if _, err := c.TryAcquire(t.Context(), "job"); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("without the right to draw tokens: %v", err)
	}
	other, err := advisory.Open(t.Context(), owner, nil)
	pgtest.Must(t, err)
	h, err := closing(t, other).TryAcquire(t.Context(), "job")
	pgtest.Must(t, err)
	pgtest.Must(t, h.Release(t.Context()))
	if err := beside.Heartbeat(t.Context()); err != nil {
		t.Errorf("the hold beside it: %v", err)
	}
}

// The GRANTs that docs/security.md shows are those that are printed.
func TestManualShowsTheGrants(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/security.md")
	pgtest.Must(t, err)
	_, block, _ := strings.Cut(string(text), "```sql\n")
	block, _, _ = strings.Cut(block, "```")
	for purpose, name := range map[string]string{"client": "app", "guard": "worker", "viewer": "grafana", "operator": "oncall"} {
		script, err := lease.Grants(nil, name, purpose)
		pgtest.Must(t, err)
		plain := strings.NewReplacer(`"public".`, "", `"`, "").Replace(script)
		printed := 0
		for line := range strings.Lines(plain) {
			if !strings.HasPrefix(line, "GRANT") {
				continue
			}
			printed++
			if !strings.Contains(block, line) {
				t.Errorf("not in the manual: %s", line)
			}
		}
		if shown := strings.Count(block, " TO "+name+";"); shown != printed || printed == 0 {
			t.Errorf("%s: %d GRANTs are shown, %d printed", purpose, shown, printed)
		}
	}
	if _, err := lease.Grants(nil, "x", "everything"); err == nil {
		t.Error("rights for an unknown purpose")
	}
	if _, err := lease.Grants(nil, "", "viewer"); err == nil {
		t.Error("rights for nobody")
	}
}
