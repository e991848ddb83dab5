package lease

import (
	"testing"
	"time"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

func TestTakeRenewRelease(t *testing.T) {
	dsn := database(t, nil)
	c := start(t, dsn, nil)
	r := request("job")
	r.Details = map[string]string{"host": "h1", "odd": "a\x00\xff\"\\"}
	term := c.take(r)
	if term.Token <= 0 {
		t.Errorf("token %d", term.Token)
	}
	if s := c.renew(term); s.Health != engine.Held || s.Err != nil {
		t.Errorf("renew: %+v", s)
	}
	if got := pgtest.One[int64](t, dsn, "SELECT token FROM mutex_lock"); got != term.Token {
		t.Errorf("the renewal wrote token %d, want %d", got, term.Token)
	}
	busy := c.busy(request("job"))
	h := busy.Holder
	if h == nil || h.Holder != "test" || h.ID != term.ID || h.StaleAfter != time.Minute || h.Interval != time.Second ||
		h.Details["host"] != "h1" || h.Heartbeat == "" || h.Since.IsZero() {
		t.Errorf("holder: %+v", h)
	}
	c.drop(term)
	if s := c.renew(term); s.Health != engine.Gone {
		t.Errorf("renew after release: %+v", s)
	}
	if r := c.release(term); r.Outcome != engine.Absent || r.Err != nil {
		t.Errorf("second release: %+v", r)
	}
	if next := c.take(request("job")); next.Token <= term.Token {
		t.Errorf("token fell from %d to %d", term.Token, next.Token)
	}
}

func TestStaleRowIsTakenByTheServersClock(t *testing.T) {
	dsn := database(t, nil)
	a, b := start(t, dsn, nil), start(t, dsn, nil)
	old := a.take(request("job"))
	age(t, dsn, "job", 59*time.Second)
	b.busy(request("job"))
	age(t, dsn, "job", 61*time.Second)

	lazy := request("job")
	lazy.Judge = false
	if got := b.busy(lazy).Holder; got == nil || got.Age < 61*time.Second {
		t.Errorf("without Judge: holder %+v", got)
	}
	r := request("job")
	answer := b.try(r)
	if answer.Outcome != engine.Granted || answer.TookOver == nil || answer.TookOver.ID != old.ID {
		t.Fatalf("takeover: %+v", answer)
	}
	if answer.Token <= old.Token {
		t.Errorf("token fell from %d to %d", old.Token, answer.Token)
	}
	// Case 8: the former holder changes nothing and learns who has it.
	if s := a.renew(old); s.Health != engine.Gone {
		t.Errorf("the old holder's renewal: %+v", s)
	}
	// Case 21: nor does its release.
	if r := a.release(old); r.Outcome != engine.Absent {
		t.Errorf("the old holder's release: %+v", r)
	}
	s := a.Explain(t.Context(), []engine.Term{old})[0]
	if s.Health != engine.Gone || s.Reason != engine.LostTakenOver || s.By != "test" {
		t.Errorf("explain: %+v", s)
	}
	if s := b.renew(r.Term); s.Health != engine.Held {
		t.Errorf("the new holder's renewal: %+v", s)
	}
}

func TestOnlyTheHeartbeatThatWasWatchedMayBeTaken(t *testing.T) {
	dsn := database(t, nil)
	a, b := start(t, dsn, nil), start(t, dsn, nil)
	term := a.take(request("job"))
	seen := b.busy(request("job")).Holder

	a.renew(term)
	late := request("job")
	late.Judge, late.Take = false, seen.Heartbeat
	seen = b.busy(late).Holder

	late.Take = seen.Heartbeat
	if got := b.try(late); got.Outcome != engine.Granted || got.TookOver == nil {
		t.Errorf("the heartbeat that stood still: %+v", got)
	}
}

func TestOwnAttemptsMayBeTaken(t *testing.T) {
	dsn := database(t, nil)
	c := start(t, dsn, nil)
	ghost := c.take(request("job"))
	r := request("job")
	r.Own = []string{"other", ghost.ID}
	answer := c.try(r)
	if answer.Outcome != engine.Granted || answer.TookOver != nil || answer.Token <= ghost.Token {
		t.Errorf("own ghost: %+v", answer)
	}
	if n := pgtest.One[int64](t, dsn, "SELECT count(*) FROM mutex_lock_event"); n != 0 {
		t.Errorf("%d events for a hold that nobody had", n)
	}
	// Others who wait could not have it, so they are not overtaken.
	waiter := start(t, dsn, nil)
	waiter.busy(waiting("job"))
	again := waiting("job")
	again.Own = []string{r.Term.ID}
	again.Term.Token = c.take(again).Token
	c.drop(again.Term)
	waiter.take(waiting("job"))
}

func TestDisown(t *testing.T) {
	dsn := database(t, nil)
	c := start(t, dsn, nil)
	ghost := c.take(request("job"))
	ghost.Token = 0 // its answer was never seen
	absent := request("other").Term
	removals := c.Release(t.Context(), []engine.Term{ghost, absent})
	if removals[0].Outcome != engine.Removed || removals[1].Outcome != engine.Absent {
		t.Errorf("removals: %+v", removals)
	}
	if n := pgtest.One[int64](t, dsn, "SELECT count(*) FROM mutex_lock_event"); n != 0 {
		t.Errorf("%d events for a hold that nobody had", n)
	}
}

func TestHolderOfTheTimeWhenTheRowIsOurs(t *testing.T) {
	// Case 9: the row is busy for a while, and the heartbeat is of the moment in
	// which it became ours. The stranger's transaction ends by itself while we
	// wait, which is shorter than our row wait.
	dsn := database(t, nil)
	c := start(t, dsn, nil)
	c.take(request("job"))
	age(t, dsn, "job", time.Hour)
	stranger := begin(t, dsn)
	pgtest.Exec(t, stranger, "UPDATE mutex_lock SET details = NULL")
	blocked := c.busy(request("job")) // bounded, and busy
	if blocked.Err != nil {
		t.Error(blocked.Err)
	}
	pgtest.Must(t, stranger.Commit(t.Context()))
	c.take(request("job"))
	if old := pgtest.One[bool](t, dsn, "SELECT clock_timestamp() - last_heartbeat > interval '10 s' FROM mutex_lock"); old {
		t.Error("the heartbeat is older than the grant")
	}
}

func TestErrorsAreTellingAndNeverBusy(t *testing.T) {
	dsn := database(t, nil)
	c := start(t, dsn, nil)
	long := request(string(make([]rune, 65)))
	if a := c.try(long); a.Outcome != engine.Refused || a.Err == nil {
		t.Errorf("zero characters: %+v", a)
	}
	pgtest.Exec(t, dsn, "DROP TABLE mutex_lock_waiter")
	if a := c.try(request("job")); a.Outcome != engine.Refused || a.Err == nil {
		t.Errorf("missing table: %+v", a)
	} else {
		t.Log(a.Err)
	}
	shared := request("job")
	shared.Term.Shared = true
	if a := c.try(shared); a.Outcome != engine.Refused {
		t.Errorf("shared: %+v", a)
	}
}
