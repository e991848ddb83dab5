package lease

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// pythonTakeovers are the ways in which a program with the reference's table can
// take a lock that is stale after 600 s: today's release deletes and inserts in
// one transaction, the others are what other releases may do.
var pythonTakeovers = map[string]func(t testing.TB, tx pgx.Tx, name, id string) (bool, error){
	"delete and insert": func(t testing.TB, tx pgx.Tx, name, id string) (bool, error) {
		var seconds float64
		err := tx.QueryRow(t.Context(), `SELECT extract(epoch FROM now() - last_heartbeat)::float8
			FROM mutex_lock WHERE lock_name = $1 FOR UPDATE`, name).Scan(&seconds)
		if err != nil || seconds < 600 {
			return false, err
		}
		if _, err := tx.Exec(t.Context(), "DELETE FROM mutex_lock WHERE lock_name = $1", name); err != nil {
			return false, err
		}
		tag, err := tx.Exec(t.Context(), `INSERT INTO mutex_lock (lock_name, locked, instance_id, last_heartbeat, acquired_at)
			VALUES ($1, 1, $2, now(), now())`, name, id)
		return tag.RowsAffected() == 1, err
	},
	"upsert": func(t testing.TB, tx pgx.Tx, name, id string) (bool, error) {
		tag, err := tx.Exec(t.Context(), `INSERT INTO mutex_lock AS m (lock_name, instance_id, last_heartbeat, acquired_at)
			VALUES ($1, $2, now(), now())
			ON CONFLICT (locked, lock_name) DO UPDATE SET instance_id = excluded.instance_id,
				last_heartbeat = excluded.last_heartbeat, acquired_at = excluded.acquired_at
			WHERE now() - m.last_heartbeat >= interval '600 s'`, name, id)
		return tag.RowsAffected() == 1, err
	},
	"update": func(t testing.TB, tx pgx.Tx, name, id string) (bool, error) {
		tag, err := tx.Exec(t.Context(), `UPDATE mutex_lock SET instance_id = $2, last_heartbeat = now(), acquired_at = now()
			WHERE lock_name = $1 AND now() - last_heartbeat >= interval '600 s'`, name, id)
		return tag.RowsAffected() == 1, err
	},
}

func TestPythonAndWeExcludeEachOther(t *testing.T) {
	for form, takeover := range pythonTakeovers {
		t.Run(form, func(t *testing.T) {
			dsn := database(t, nil)
			c := start(t, dsn, nil)
			try := func(id string) bool {
				tx := begin(t, dsn)
				took, err := takeover(t, tx, "job", id)
				pgtest.Must(t, err)
				pgtest.Must(t, tx.Commit(t.Context()))
				return took
			}
			r := request("job")
			r.Term.StaleAfter = 5 * time.Second
			r.Details = map[string]string{"whose": "ours"}
			ours := c.take(r)
			c.renew(ours)
			if try("python-1") {
				t.Error("it took a live lock of ours")
			}
			age(t, dsn, "job", 601*time.Second)
			if !try("python-1") {
				t.Fatal("it could not take a dead lock of ours")
			}
			if s := c.Explain(t.Context(), []engine.Term{ours})[0]; s.Reason != engine.LostTakenOver || s.By != "python-1" {
				t.Errorf("explain: %+v", s)
			}
			// A takeover by UPDATE leaves our columns: its holder has promised
			// nothing by them.
			age(t, dsn, "job", 6*time.Second)
			if h := c.busy(request("job")).Holder; h.StaleAfter != 600*time.Second || h.Details != nil || h.Interval != 0 || h.Holder != "python-1" {
				t.Errorf("its holder: %+v", h)
			}
			st, err := c.Inspect(t.Context(), "job")
			pgtest.Must(t, err)
			if st.State != engine.StateHeld || st.StaleAfter != 600*time.Second || st.Token != 0 || st.Details != nil || st.Term != "python-1" {
				t.Errorf("status: %+v", st)
			}
			age(t, dsn, "job", 45*time.Second)
			if st, err = c.Inspect(t.Context(), "job"); err != nil || st.State != engine.StateLate {
				t.Errorf("status: %+v, %v", st, err)
			}
			age(t, dsn, "job", 601*time.Second)
			answer := c.try(request("job"))
			if answer.Outcome != engine.Granted || answer.TookOver == nil || answer.TookOver.Holder != "python-1" || answer.Token <= ours.Token {
				t.Errorf("our takeover: %+v", answer)
			}
		})
	}
}

func TestPeerStaleAfterAndCaps(t *testing.T) {
	dsn := database(t, nil)
	c := start(t, dsn, &Options{PeerStaleAfter: 10 * time.Second})
	if got := c.Describe().TrustCap; got != 10*time.Second {
		t.Errorf("TrustCap %v", got)
	}
	pgtest.Exec(t, dsn, "INSERT INTO mutex_lock (lock_name, instance_id, last_heartbeat, acquired_at) VALUES ('job', 'python', now(), now())")
	age(t, dsn, "job", 9*time.Second)
	c.busy(request("job"))
	age(t, dsn, "job", 11*time.Second)
	c.take(request("job"))

	alone, err := New(dsn, &Options{NoPeers: true})
	pgtest.Must(t, err)
	if got := alone.Describe().TrustCap; got != 0 {
		t.Errorf("TrustCap %v", got)
	}
	pgtest.Must(t, alone.Close(t.Context()))
	for _, o := range []Options{
		{NoPeers: true, PeerStaleAfter: time.Minute}, {PeerStaleAfter: -1}, {PeerStaleAfter: time.Millisecond},
		{PeerStaleAfter: 8 * 24 * time.Hour}, {Table: "a.b.c"}, {Table: "."},
	} {
		if _, err := New(dsn, &o); err == nil {
			t.Errorf("%+v was not refused", o)
		}
	}
}

func TestARowThatWentBackInTime(t *testing.T) {
	// Case 34: an earlier state of the row is put back under a live holder.
	dsn := database(t, nil)
	b, c := start(t, dsn, nil), start(t, dsn, nil)
	old := b.take(request("job"))
	pgtest.Exec(t, dsn, "CREATE TABLE saved AS TABLE mutex_lock")
	b.drop(old)
	now := c.take(request("job"))
	pgtest.Exec(t, dsn, "DELETE FROM mutex_lock")
	pgtest.Exec(t, dsn, "INSERT INTO mutex_lock SELECT * FROM saved")
	if s := c.renew(now); s.Health != engine.Gone {
		t.Errorf("%+v", s)
	}
	if s := b.renew(old); s.Health != engine.Held {
		t.Errorf("the foreign row was touched: %+v", s)
	}
	age(t, dsn, "job", time.Hour)
	if st, err := c.Inspect(t.Context(), "job"); err != nil || st.State != engine.StateStale || st.Remaining != 0 {
		t.Errorf("%+v, %v", st, err)
	}
	c.take(request("job"))
}
