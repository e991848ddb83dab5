package lease

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// manyTerms makes n holds at once.
func manyTerms(t testing.TB, conn *pgx.Conn, n int) []engine.Term {
	t.Helper()
	rows, err := conn.Query(t.Context(), `
		INSERT INTO mutex_lock (lock_name, instance_id, promised_by, last_heartbeat, acquired_at, stale_after)
		SELECT 'job-' || i, 'test~' || i, 'test~' || i, clock_timestamp(), clock_timestamp(), interval '1 minute'
		FROM generate_series(1, $1::int) AS i RETURNING lock_name, instance_id`, n)
	pgtest.Must(t, err)
	terms, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (term engine.Term, err error) {
		err = row.Scan(&term.Name, &term.ID)
		term.StaleAfter, term.Token = time.Minute, 7
		return term, err
	})
	pgtest.Must(t, err)
	return terms
}

func TestOneStuckRowDoesNotStopTheOthers(t *testing.T) {
	dsn := database(t, nil)
	c := start(t, dsn, nil)
	conn := pgtest.Conn(t, dsn)
	terms := manyTerms(t, conn, 200)
	pgtest.Exec(t, conn, "UPDATE mutex_lock SET last_heartbeat = last_heartbeat - interval '30 s'")
	stuck := begin(t, dsn)
	pgtest.Exec(t, stuck, "SELECT 1 FROM mutex_lock WHERE lock_name = $1 FOR UPDATE", terms[17].Name)
	gone := terms[42]
	pgtest.Exec(t, conn, "DELETE FROM mutex_lock WHERE lock_name = $1", gone.Name)

	for i, s := range c.Renew(t.Context(), terms) {
		want := engine.Held
		switch i {
		case 17:
			want = engine.Unclear
			if s.Err == nil {
				t.Error("the stuck row has no error")
			}
		case 42:
			want = engine.Gone
		}
		if s.Health != want {
			t.Errorf("%d: %+v", i, s)
		}
	}
	fresh := pgtest.One[int64](t, conn, "SELECT count(*) FROM mutex_lock WHERE clock_timestamp() - last_heartbeat < interval '20 s' AND token = 7")
	if fresh != 198 {
		t.Errorf("%d rows were renewed, want 198", fresh)
	}
	pgtest.Must(t, stuck.Rollback(t.Context()))
	if s := c.renew(terms[17]); s.Health != engine.Held {
		t.Errorf("the row that was stuck: %+v", s)
	}
}

func TestRenewalsStayWithinTheirPage(t *testing.T) {
	dsn := database(t, nil)
	c := start(t, dsn, nil)
	conn := pgtest.Conn(t, dsn)
	terms := manyTerms(t, conn, 20)
	const rounds = 20
	for range rounds {
		for _, s := range c.Renew(t.Context(), terms) {
			if s.Health != engine.Held {
				t.Fatalf("%+v", s)
			}
		}
	}
	c.renew(terms[0])
	// The backend that renewed reports when it is idle or ends.
	closed := c.store.Close(t.Context())
	pgtest.Must(t, closed)
	var all, hot int64
	pgtest.WaitFor(t, "the statistics of all updates", func() bool {
		pgtest.Must(t, conn.QueryRow(t.Context(), `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_all_tables
			WHERE relid = 'mutex_lock'::regclass`).Scan(&all, &hot))
		return all >= rounds*20+1
	})
	if hot < all*95/100 {
		t.Errorf("%d of %d updates stayed within their page", hot, all)
	}
}

func TestRenewalReadsTheRequestToStop(t *testing.T) {
	dsn := database(t, nil)
	c, operator := start(t, dsn, nil), start(t, dsn, nil)
	a, b := c.take(request("a")), c.take(request("b"))
	seen, err := operator.Inspect(t.Context(), "a")
	pgtest.Must(t, err)
	pgtest.Must(t, operator.ForceRelease(t.Context(), seen, engine.Force{By: "ops", Reason: "deploy"}))
	for _, s := range []engine.Standing{c.renew(a), c.Renew(t.Context(), []engine.Term{b, a})[1]} {
		if s.Health != engine.Held || !s.Stop || s.StopBy != "ops" {
			t.Errorf("after the request: %+v", s)
		}
	}
	if s := c.renew(b); s.Stop {
		t.Errorf("another name: %+v", s)
	}
}
