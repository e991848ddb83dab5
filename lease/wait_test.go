package lease

import (
	"context"
	"errors"
	"io/fs"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/faultconn"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// listening makes an attempt until LISTEN is in effect.
func (c *client) listening(name string) engine.Answer {
	c.t.Helper()
	a := c.busy(waiting(name))
	if !a.Hinted {
		c.sink.await(c.t, "")
		a = c.busy(waiting(name))
	}
	if !a.Hinted {
		c.t.Fatalf("no hints will come: %+v", a)
	}
	return a
}

func TestFirstComeFirstServed(t *testing.T) {
	dsn := database(t, nil)
	holder, first, second, barger := start(t, dsn, nil), start(t, dsn, nil), start(t, dsn, nil), start(t, dsn, nil)
	term := holder.take(request("job"))
	if a := first.listening("job"); a.Place != 1 || a.Holder == nil || a.RetryIn != 0 {
		t.Errorf("the first: %+v", a)
	}
	if a := second.listening("job"); a.Place != 2 {
		t.Errorf("the second: %+v", a)
	}
	holder.drop(term)
	first.sink.await(t, "job")
	// The lock is free and offered: a waiter does not overtake, in the line or
	// newly come.
	a := second.busy(waiting("job"))
	if a.RetryIn <= 0 || a.RetryIn > time.Second+2*afterOffer {
		t.Errorf("the second while the first has an offer: %+v", a)
	}
	if a := holder.busy(waiting("job")); a.RetryIn <= 0 || a.Place != 3 {
		t.Errorf("one who comes later: %+v", a)
	}
	pgtest.Must(t, holder.Leave(t.Context(), []string{"job"}))

	term = first.take(waiting("job"))
	first.drop(term) // the mark was carried over: others wait
	second.sink.await(t, "job")
	// Without Wait it may overtake, and takes the mark over too.
	term = barger.take(request("job"))
	second.listening("job")
	barger.drop(term)
	second.sink.await(t, "job")
	second.take(waiting("job"))
	if n := pgtest.One[int64](t, dsn, "SELECT count(*) FROM mutex_lock_waiter"); n != 0 {
		t.Errorf("%d places are left in the line", n)
	}
}

func TestWhoDoesNotAnswerIsPassedOver(t *testing.T) {
	dsn := database(t, nil)
	holder, dead, next := start(t, dsn, nil), start(t, dsn, nil), start(t, dsn, nil)
	term := holder.take(request("job"))
	dead.listening("job")
	next.listening("job")
	holder.drop(term)
	dead.sink.await(t, "job")
	next.sink.await(t, "job") // the releaser watches over its offer
	next.take(waiting("job"))
	// Having been seen again, it has its old place.
	if a := dead.busy(waiting("job")); a.Place != 1 {
		t.Errorf("seen again: %+v", a)
	}
}

func TestAWaiterWatchesWhenTheReleaserHasGone(t *testing.T) {
	dsn := database(t, nil)
	holder, dead, next := start(t, dsn, nil), start(t, dsn, nil), start(t, dsn, nil)
	term := holder.take(request("job"))
	dead.listening("job")
	next.listening("job")
	holder.drop(term)
	pgtest.Must(t, holder.Close(t.Context()))
	next.sink.await(t, "job")
	term, ok := next.await("job")
	if !ok {
		return
	}
	next.drop(term)
}

func TestLeaveGivesTheOfferToTheNext(t *testing.T) {
	dsn := database(t, nil)
	holder, first, second := start(t, dsn, nil), start(t, dsn, nil), start(t, dsn, nil)
	term := holder.take(request("job"))
	first.listening("job")
	second.listening("job")
	holder.drop(term)
	first.sink.await(t, "job")
	pgtest.Must(t, first.Leave(t.Context(), []string{"job", "other"}))
	second.sink.await(t, "job")
	second.take(waiting("job"))
}

func TestNotificationsSayWhichName(t *testing.T) {
	dsn := database(t, nil)
	holder, waiter := start(t, dsn, nil), start(t, dsn, nil)
	a, b := holder.take(request("a")), holder.take(request("b"))
	waiter.listening("a")
	waiter.listening("b")
	waiter.listening("b")
	for len(waiter.sink.news) > 0 {
		<-waiter.sink.news
	}
	holder.drop(b)
	if got := <-waiter.sink.news; got != "b" {
		t.Errorf("Freed(%q), want b", got)
	}
	holder.drop(a)
	waiter.sink.await(t, "a")
}

func TestForgedNotificationsAreBounded(t *testing.T) {
	dsn := database(t, nil)
	holder, waiter := start(t, dsn, nil), start(t, dsn, nil)
	holder.take(request("job"))
	waiter.listening("job")
	conn := pgtest.Conn(t, dsn)
	before := len(waiter.sink.news)
	began := time.Now()
	for range 500 {
		pgtest.Exec(t, conn, "SELECT pg_notify($1, 'x')", waiter.channel)
	}
	took := time.Since(began)
	waiter.sink.await(t, "job")
	if n := len(waiter.sink.news) - before; n > int(took/sweepEvery)+sweepBurst+2 {
		t.Errorf("%d reports for 500 notifications in %v", n, took)
	}
}

func TestReconnectIsReported(t *testing.T) {
	dsn := database(t, nil)
	holder, waiter := start(t, dsn, nil), start(t, dsn, nil)
	holder.take(request("job"))
	waiter.listening("job")
	for len(waiter.sink.news) > 0 {
		<-waiter.sink.news
	}
	n := pgtest.One[int64](t, dsn, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE datname = current_database() AND query ILIKE 'listen%'`)
	if n != 1 {
		t.Fatalf("%d sessions listen", n)
	}
	waiter.sink.await(t, "")
}

func TestPollOnlyAndPythonHoldersGiveNoHints(t *testing.T) {
	dsn := database(t, nil)
	holder, deaf, waiter := start(t, dsn, nil), start(t, dsn, &Options{PollOnly: true}), start(t, dsn, nil)
	term := holder.take(request("job"))
	if a := deaf.busy(waiting("job")); a.Hinted {
		t.Errorf("PollOnly: %+v", a)
	}
	waiter.listening("job")
	pgtest.Exec(t, dsn, "UPDATE mutex_lock SET instance_id = 'python'")
	if a := waiter.busy(waiting("job")); a.Hinted || a.Holder.Holder != "python" {
		t.Errorf("a Python holder: %+v", a)
	}
	if s := holder.renew(term); s.Health != engine.Gone {
		t.Errorf("%+v", s)
	}
}

func TestAStaleLockGoesToTheFirstInTheLine(t *testing.T) {
	dsn := database(t, nil)
	holder, first, second := start(t, dsn, nil), start(t, dsn, nil), start(t, dsn, nil)
	old := holder.take(request("job"))
	first.listening("job")
	second.listening("job")
	age(t, dsn, "job", time.Hour)
	if a := second.busy(waiting("job")); a.RetryIn <= 0 {
		t.Errorf("the second: %+v", a)
	}
	first.sink.await(t, "job")
	r := waiting("job")
	if a := first.try(r); a.Outcome != engine.Granted || a.TookOver == nil || a.TookOver.ID != old.ID {
		t.Fatalf("the first: %+v", a)
	}
	first.drop(r.Term)
	second.sink.await(t, "job")
}

func TestAbandonedPlacesDoNotCountAndGo(t *testing.T) {
	dsn := database(t, nil)
	holder, waiter := start(t, dsn, nil), start(t, dsn, nil)
	term := holder.take(request("job"))
	waiter.listening("job")
	pgtest.Exec(t, dsn, "UPDATE mutex_lock_waiter SET seen = seen - interval '1 hour'")
	holder.drop(term)
	holder.take(waiting("job"))
	holder.pruneNow(t.Context(), holder.db)
	if n := pgtest.One[int64](t, dsn, "SELECT count(*) FROM mutex_lock_waiter"); n != 0 {
		t.Errorf("%d places are left in the line", n)
	}
}

// A release whose answer was lost has woken nobody: the one that repeats it does.
func TestARepeatedReleaseWakesWhoWaits(t *testing.T) {
	dsn := database(t, nil)
	proxy := faultconn.New(t, pgtest.Shared(t).Addr())
	holder, waiter := start(t, proxy.DSN(dsn), nil), start(t, dsn, nil)
	for _, names := range [][]string{{"alone"}, {"one of two", "the other"}} {
		var terms []engine.Term
		for _, name := range names {
			terms = append(terms, holder.take(request(name)))
		}
		waiter.listening(names[0])
		proxy.CutAfter(faultconn.CommandComplete("SELECT"))
		for _, r := range holder.Release(t.Context(), terms) {
			if r.Outcome != engine.Unconfirmed || r.Err == nil {
				t.Errorf("%q: %+v", names, r)
			}
		}
		for _, r := range holder.Release(t.Context(), terms) {
			if r.Outcome != engine.Absent || r.Err != nil {
				t.Errorf("%q, again: %+v", names, r)
			}
		}
		waiter.sink.await(t, names[0])
		waiter.take(waiting(names[0]))
	}
}

// A waiter that is refused a place in the line has left: nobody listens for it.
func TestWhoIsRefusedAPlaceListensNoMore(t *testing.T) {
	dsn := database(t, nil)
	pgtest.Exec(t, dsn, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no' USING ERRCODE = '42501'; END $$;
		CREATE TRIGGER refuse BEFORE INSERT ON mutex_lock_waiter FOR EACH ROW EXECUTE FUNCTION refuse()`)
	start(t, dsn, nil).take(request("job"))
	eng, err := New(dsn, nil)
	pgtest.Must(t, err)
	locks, err := pgmutex.New(t.Context(), eng, nil)
	pgtest.Must(t, err)
	defer locks.Close(context.Background())
	if _, err := locks.Acquire(t.Context(), "job"); !errors.Is(err, fs.ErrPermission) {
		t.Fatalf("want a refusal, got %v", err)
	}
	line := eng.(*store).line
	pgtest.WaitFor(t, "the engine to forget the name", func() bool { return !line.waits("job") })
	pgtest.WaitFor(t, "nobody to listen", func() bool {
		line.mu.Lock()
		deaf := line.ear == nil
		line.mu.Unlock()
		return deaf && pgtest.One[int64](t, dsn, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND query ILIKE 'listen%'`) == 0
	})
}
