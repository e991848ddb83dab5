package lease

import (
	"sync"
	"testing"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// TestTokensAreRaisedAfterAFailover stands for a promotion: the meta row names
// another timeline than the server's, and the sequence has gone back.
func TestTokensAreRaisedAfterAFailover(t *testing.T) {
	dsn := database(t, nil)
	conn := pgtest.Conn(t, dsn)
	before := start(t, dsn, nil)
	term := before.take(request("job"))
	highest := term.Token
	before.drop(term)
	if highest >= 1<<44 {
		t.Errorf("the first token is %d: a fresh table needs no raising", highest)
	}
	for i, timeline := range []string{"timeline - 1", "NULL", "timeline - 3", "timeline + 7"} {
		pgtest.Exec(t, conn, "UPDATE mutex_lock_meta SET timeline = "+timeline)
		pgtest.Exec(t, conn, "SELECT setval('mutex_lock_token', 1)")
		pgtest.Exec(t, conn, "SELECT setval('mutex_lock_token', $1)", highest-highest%(1<<44)+1)
		const clients = 8
		terms := make([]engine.Term, clients)
		var group sync.WaitGroup
		for j := range terms {
			c := start(t, dsn, nil)
			group.Go(func() {
				r := request(newID())
				if a := c.try(r); a.Outcome == engine.Granted {
					terms[j] = r.Term
					terms[j].Token = a.Token
				} else {
					t.Errorf("outcome %d: %v", a.Outcome, a.Err)
				}
			})
		}
		group.Wait()
		lowest := terms[0].Token
		steps := map[int64]bool{}
		for _, term := range terms {
			lowest = min(lowest, term.Token)
			steps[term.Token>>44] = true
		}
		if lowest <= highest || lowest < 1<<44 {
			t.Errorf("%d: token %d after %d", i, lowest, highest)
		}
		if len(steps) != 1 {
			t.Errorf("%d: raised more than once: %v", i, steps)
		}
		for _, term := range terms {
			highest = max(highest, term.Token)
		}
		if n := pgtest.One[int64](t, conn, "SELECT count(*) FROM mutex_lock_event WHERE acquired_at IS NULL OR token IS NULL"); n != 0 {
			t.Errorf("%d events of grants that were given back", n)
		}
	}
	if got, want := highest>>44, int64(1+1+3+1); got != want {
		t.Errorf("the tokens were raised by %d steps, want %d", got, want)
	}
}

// The takeover that raises the tokens is told as any other.
func TestTakeoverAfterAFailover(t *testing.T) {
	dsn := database(t, nil)
	c := start(t, dsn, nil)
	old := c.take(request("job"))
	pgtest.Exec(t, dsn, "UPDATE mutex_lock SET last_heartbeat = last_heartbeat - interval '1 hour'")
	pgtest.Exec(t, dsn, "UPDATE mutex_lock_meta SET timeline = timeline - 1")
	a := start(t, dsn, nil).try(request("job"))
	if a.Outcome != engine.Granted || a.Token < 1<<44 || a.TookOver == nil || a.TookOver.ID != old.ID {
		t.Errorf("%+v", a)
	}
}

func TestTokensWhereTheTimelineCannotBeRead(t *testing.T) {
	dsn := database(t, nil)
	pgtest.Exec(t, dsn, "REVOKE EXECUTE ON FUNCTION pg_walfile_name(pg_lsn) FROM PUBLIC")
	role := "token_reader"
	pgtest.Shared(t).Role(t, role, "secret")
	script, err := SQL(nil, role)
	pgtest.Must(t, err)
	pgtest.Exec(t, dsn, script)
	pgtest.Exec(t, dsn, "UPDATE mutex_lock_meta SET timeline = NULL")
	name := pgtest.One[string](t, dsn, "SELECT current_database()::text")
	c := start(t, pgtest.Shared(t).PasswordDSN(name, role, "secret"), nil)
	if term := c.take(request("job")); term.Token >= 1<<44 {
		t.Errorf("token %d", term.Token)
	}
}
