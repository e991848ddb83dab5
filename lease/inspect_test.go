package lease

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

func TestInspect(t *testing.T) {
	dsn := database(t, nil)
	c, waiter := start(t, dsn, nil), start(t, dsn, nil)
	free, err := c.Inspect(t.Context(), "job")
	pgtest.Must(t, err)
	if want := (engine.Status{Name: "job", ID: engine.NameID("job"), Engine: "lease", State: engine.StateFree}); fmt.Sprint(free) != fmt.Sprint(want) {
		t.Errorf("free: %+v", free)
	}
	r := request("job")
	r.Details = map[string]string{"host": "h1"}
	term := c.take(r)
	c.renew(term)
	waiter.busy(waiting("job"))
	st, err := c.Inspect(t.Context(), "job")
	pgtest.Must(t, err)
	if st.State != engine.StateHeld || st.Holder != "test" || st.Term != term.ID || st.Token != term.Token ||
		st.StaleAfter != time.Minute || st.Heartbeat != time.Second || st.AlertAfter != 3*time.Second ||
		st.Waiters != 1 || st.Details["host"] != "h1" || st.StopAsked || st.Remaining <= 0 || st.Since.IsZero() {
		t.Errorf("held: %+v", st)
	}
	for _, step := range []struct {
		age  time.Duration
		want engine.State
	}{{4 * time.Second, engine.StateLate}, {61 * time.Second, engine.StateStale}} {
		age(t, dsn, "job", step.age)
		st, err := c.Inspect(t.Context(), "job")
		pgtest.Must(t, err)
		if st.State != step.want || st.HeartbeatAge < step.age {
			t.Errorf("after %v: %+v", step.age, st)
		}
	}
	// Details that somebody else wrote.
	for _, details := range []string{`[1]`, `"x"`, `{}`, `{"n": 1, "o": {"p": null}}`} {
		pgtest.Exec(t, dsn, "UPDATE mutex_lock SET details = $1::text::jsonb", details)
		if _, err := c.Inspect(t.Context(), "job"); err != nil {
			t.Errorf("%s: %v", details, err)
		}
	}
}

func TestListGivesPagesAndKeepsNoConnection(t *testing.T) {
	dsn := database(t, nil)
	c := start(t, dsn, nil)
	const n = 2*pageSize + 7
	manyTerms(t, pgtest.Conn(t, dsn), n)
	var names []string
	for st, err := range c.List(t.Context()) {
		pgtest.Must(t, err)
		if len(names) < 3 {
			c.drop(c.take(request("in between"))) // the engine works meanwhile
		}
		names = append(names, st.Name)
	}
	if len(names) != n || len(slices.Compact(slices.Clone(names))) != n {
		t.Errorf("%d names", len(names))
	}
	for range c.List(t.Context()) {
		break
	}
	pgtest.Exec(t, dsn, "DROP TABLE mutex_lock_event")
	failed := false
	for _, err := range c.History(t.Context(), "") {
		failed = failed || err != nil
	}
	if !failed {
		t.Error("no error")
	}
}

func TestHistory(t *testing.T) {
	dsn := database(t, nil)
	c, ops := start(t, dsn, nil), start(t, dsn, nil)
	released := c.take(request("job"))
	c.drop(released)
	stale := c.take(request("job"))
	age(t, dsn, "job", time.Hour)
	forced := ops.take(request("job"))
	seen, err := ops.Inspect(t.Context(), "job")
	pgtest.Must(t, err)
	pgtest.Must(t, ops.ForceRelease(t.Context(), seen, engine.Force{By: "a~b", Reason: "why", Now: true}))
	asked := c.take(request("job"))
	seen, err = ops.Inspect(t.Context(), "job")
	pgtest.Must(t, err)
	pgtest.Must(t, ops.ForceRelease(t.Context(), seen, engine.Force{By: "ops"}))
	c.drop(asked)
	other := c.take(request("other"))
	c.Release(t.Context(), []engine.Term{other, request("absent").Term})

	var got []string
	for p, err := range c.History(t.Context(), "job") {
		pgtest.Must(t, err)
		got = append(got, fmt.Sprint(p.Term, " ", p.Token, " ", p.End, " ", p.By, " ", p.Reason))
		if p.Holder != "test" || p.AcquiredAt.IsZero() || p.EndedAt.Before(p.AcquiredAt) {
			t.Errorf("%+v", p)
		}
	}
	want := []string{
		fmt.Sprint(asked.ID, " ", asked.Token, " forced ops "),
		fmt.Sprint(forced.ID, " 0 forced a~b why"), // its token was not written yet
		fmt.Sprint(stale.ID, " 0 taken over test "),
		fmt.Sprint(released.ID, " ", released.Token, " released  "),
	}
	if !slices.Equal(got, want) {
		t.Errorf("history:\n%q\nwant\n%q", got, want)
	}
	for term, want := range map[string]engine.Standing{
		forced.ID:   {Health: engine.Gone, Reason: engine.LostReleased, By: "a~b"},
		stale.ID:    {Health: engine.Gone, Reason: engine.LostTakenOver, By: "test"},
		released.ID: {Health: engine.Gone},
		"never~was": {Health: engine.Gone, Reason: engine.LostRowGone},
	} {
		if got := c.Explain(t.Context(), []engine.Term{{Name: "job", ID: term}})[0]; got != want {
			t.Errorf("explain %s: %+v, want %+v", term, got, want)
		}
	}
	n := 0
	for _, err := range c.History(t.Context(), "") {
		pgtest.Must(t, err)
		n++
	}
	if n != 5 {
		t.Errorf("%d events in all", n)
	}

	pgtest.Exec(t, dsn, "UPDATE mutex_lock_event SET ended_at = ended_at - interval '31 days' WHERE instance_id <> $1", asked.ID)
	c.pruneNow(t.Context(), c.db)
	if n := pgtest.One[int64](t, dsn, "SELECT count(*) FROM mutex_lock_event"); n != 1 {
		t.Errorf("%d events are left", n)
	}
}

func TestForceIsAimed(t *testing.T) {
	dsn := database(t, nil)
	c, ops := start(t, dsn, nil), start(t, dsn, nil)
	term := c.take(request("job"))
	seen, err := ops.Inspect(t.Context(), "job")
	pgtest.Must(t, err)
	c.drop(term)
	for _, now := range []bool{true, false} {
		if err := ops.ForceRelease(t.Context(), seen, engine.Force{Now: now}); !errors.Is(err, engine.ErrGone) {
			t.Errorf("free: %v", err)
		}
	}
	next := c.take(request("job"))
	for _, now := range []bool{true, false} {
		if err := ops.ForceRelease(t.Context(), seen, engine.Force{Now: now}); !errors.Is(err, engine.ErrChanged) {
			t.Errorf("changed hands: %v", err)
		}
	}
	if s := c.renew(next); s.Health != engine.Held || s.Stop {
		t.Errorf("the other holder: %+v", s)
	}
	free := engine.Status{Name: "nosuch", State: engine.StateFree}
	if err := ops.ForceRelease(t.Context(), free, engine.Force{Now: true}); !errors.Is(err, engine.ErrGone) {
		t.Errorf("nothing was shown: %v", err)
	}
	// A Python holder reads no request.
	pgtest.Exec(t, dsn, "UPDATE mutex_lock SET instance_id = 'python'")
	seen, err = ops.Inspect(t.Context(), "job")
	pgtest.Must(t, err)
	if err := ops.ForceRelease(t.Context(), seen, engine.Force{}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("ask a Python holder: %v", err)
	}
	pgtest.Must(t, ops.ForceRelease(t.Context(), seen, engine.Force{Now: true}))
	c.take(request("job"))
}

func TestReleaseInABatchStepsAroundLockedRows(t *testing.T) {
	dsn := database(t, nil)
	c, waiter := start(t, dsn, nil), start(t, dsn, nil)
	a, b, absent := c.take(request("a")), c.take(request("b")), request("absent").Term
	waiter.listening("a")
	tx := begin(t, dsn)
	pgtest.Must(t, c.Guard(t.Context(), b, execOn(tx)))
	removals := c.Release(t.Context(), []engine.Term{a, b, absent})
	if removals[0].Outcome != engine.Removed || removals[1].Outcome != engine.Unconfirmed || removals[1].Err == nil ||
		removals[2].Outcome != engine.Absent {
		t.Errorf("removals: %+v", removals)
	}
	waiter.sink.await(t, "a")
	pgtest.Must(t, tx.Commit(t.Context()))
	c.drop(b)
}
