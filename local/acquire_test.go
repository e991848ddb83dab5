package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex/engine"
)

func TestOneHolder(t *testing.T) {
	h, path := newHost(), store(t)
	a, b := start(t, h, path), start(t, h, path)
	req := request("x", "a")
	req.Details = map[string]string{"host": "here", "emoji": "🔒"}
	term := grant(t, a, req)

	h.pass(3 * time.Second)
	got := wantBusy(t, b, request("x", "b")).Holder
	want := &engine.Rival{
		Holder: "a", ID: term.ID, Since: h.day.Add(-3 * time.Second), Heartbeat: got.Heartbeat,
		Age: 3 * time.Second, StaleAfter: time.Minute, Interval: 5 * time.Second, Details: req.Details,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("rival %+v, want %+v", got, want)
	}
	// The same client is no better off: two goroutines exclude each other.
	wantBusy(t, a, request("x", "a"))
	grant(t, b, request("y", "b"))

	if r := release(a, term); r.Outcome != engine.Removed {
		t.Fatalf("release: %+v", r)
	}
	if r := release(a, term); r.Outcome != engine.Absent {
		t.Fatalf("second release: %+v", r)
	}
	next := grant(t, b, request("x", "b"))
	if next.Token <= term.Token {
		t.Errorf("token %d after %d", next.Token, term.Token)
	}
}

func TestTokensRiseForEveryGrant(t *testing.T) {
	h, path := newHost(), store(t)
	a, b := start(t, h, path), start(t, h, path)
	last := int64(0)
	for i := range 20 {
		p := []*process{a, b}[i%2]
		term := grant(t, p, request("x", "p"))
		if term.Token != last+1 {
			t.Fatalf("grant %d has token %d after %d", i, term.Token, last)
		}
		last = term.Token
		release(p, term)
	}
}

func TestStaleHolderIsReplacedAtTheFirstTry(t *testing.T) {
	h, path := newHost(), store(t)
	a, b := start(t, h, path), start(t, h, path)
	term := grant(t, a, request("x", "a"))
	h.pass(time.Minute) // exactly the promise: not over yet
	wantBusy(t, b, request("x", "b"))
	h.pass(1)
	unjudged := request("x", "b")
	unjudged.Judge = false
	wantBusy(t, b, unjudged)

	ans := ask(b, request("x", "b"))
	if ans.Outcome != engine.Granted || ans.TookOver == nil || ans.TookOver.ID != term.ID {
		t.Fatalf("takeover: %+v", ans)
	}
	// The former holder learns it, and cannot touch what is there now.
	want := engine.Standing{Health: engine.Gone, Reason: engine.LostTakenOver, By: "b"}
	if got := renew(a, term); got != want {
		t.Errorf("renewal after the takeover: %+v, want %+v", got, want)
	}
	if got := a.Explain(context.Background(), []engine.Term{term})[0]; got != want {
		t.Errorf("explained as %+v, want %+v", got, want)
	}
	if r := release(a, term); r.Outcome != engine.Absent {
		t.Errorf("release after the takeover: %+v", r)
	}
	if got := wantBusy(t, a, request("x", "a")).Holder.Holder; got != "b" {
		t.Errorf("held by %q", got)
	}
}

func TestStaleHolderThatRenewsIsFreshAgain(t *testing.T) {
	h, path := newHost(), store(t)
	a, b := start(t, h, path), start(t, h, path)
	term := grant(t, a, request("x", "a"))
	h.pass(2 * time.Minute)
	if s := renew(a, term); s.Health != engine.Held {
		t.Fatalf("renewal: %+v", s)
	}
	wantBusy(t, b, request("x", "b"))
}

func TestOwnPromiseOfTheHolderCounts(t *testing.T) {
	h, path := newHost(), store(t)
	a, b := start(t, h, path), start(t, h, path)
	grant(t, a, request("x", "a"))
	h.pass(30 * time.Second)
	impatient := request("x", "b")
	impatient.Term.StaleAfter = time.Second
	wantBusy(t, b, impatient)
}

func TestTakeNamesOneHeartbeat(t *testing.T) {
	h, path := newHost(), store(t)
	a, b := start(t, h, path), start(t, h, path)
	term := grant(t, a, request("x", "a"))
	seen := wantBusy(t, b, request("x", "b")).Holder.Heartbeat
	renew(a, term) // in the same moment: the heartbeats differ all the same
	take := request("x", "b")
	take.Judge, take.Take = false, seen
	fresh := wantBusy(t, b, take).Holder.Heartbeat
	if fresh == seen {
		t.Fatalf("two heartbeats have one name %q", fresh)
	}
	take.Take = fresh
	grant(t, b, take)
}

func TestWallClockDecidesNothing(t *testing.T) {
	h, path := newHost(), store(t)
	a, b := start(t, h, path), start(t, h, path)
	grant(t, a, request("x", "a"))
	for _, step := range []time.Duration{24 * time.Hour, -48 * time.Hour} {
		h.day = h.day.Add(step)
		if age := wantBusy(t, b, request("x", "b")).Holder.Age; age != 0 {
			t.Errorf("age %v after a step of %v", age, step)
		}
	}
}

func TestGhostsOfTheClientAreItsOwn(t *testing.T) {
	h, path := newHost(), store(t)
	a, b := start(t, h, path), start(t, h, path)
	ghost := grant(t, a, request("x", "a"))
	req := request("x", "a")
	req.Own = []string{"a~something-else", ghost.ID}
	if got := grant(t, a, req); got.Token <= ghost.Token {
		t.Errorf("token %d after %d", got.Token, ghost.Token)
	}
	// A request that is sent twice.
	grant(t, a, req)
	wantBusy(t, b, request("x", "b"))
	if s := renew(a, ghost); s.Health != engine.Gone {
		t.Errorf("ghost: %+v", s)
	}
}

func TestBatchHasOneAnswerForEach(t *testing.T) {
	h, path := newHost(), store(t)
	a, b := start(t, h, path), start(t, h, path)
	held := grant(t, b, request("b", "b"))
	batch := []engine.Request{request("a", "a"), request("b", "a"), request("c", "a"), request(strings.Repeat("é", 65), "a")}
	answers := a.Acquire(context.Background(), batch)
	var got []engine.Outcome
	for _, ans := range answers {
		got = append(got, ans.Outcome)
	}
	want := []engine.Outcome{engine.Granted, engine.Busy, engine.Granted, engine.Refused}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("outcomes %v, want %v", got, want)
	}
	terms := []engine.Term{batch[0].Term, held, batch[2].Term, {Name: "nobody", ID: "n~1"}}
	standings := a.Renew(context.Background(), terms)
	for i, want := range []engine.Health{engine.Held, engine.Held, engine.Held, engine.Gone} {
		if standings[i].Health != want {
			t.Errorf("renewal %d: %+v", i, standings[i])
		}
	}
	if standings[3].Reason != engine.LostRowGone {
		t.Errorf("a term without a trace: %+v", standings[3])
	}
	removals := a.Release(context.Background(), terms)
	for i, want := range []engine.RemovalOutcome{engine.Removed, engine.Removed, engine.Removed, engine.Absent} {
		if removals[i].Outcome != want {
			t.Errorf("release %d: %+v", i, removals[i])
		}
	}
	if a.Acquire(context.Background(), nil) != nil || a.Renew(context.Background(), nil) != nil || a.Release(context.Background(), nil) != nil {
		t.Error("an empty batch has answers")
	}
}

func TestRefusedRequests(t *testing.T) {
	p := start(t, newHost(), store(t))
	shared := request("x", "a")
	shared.Term.Shared = true
	if a := ask(p, shared); a.Outcome != engine.Refused || !errors.Is(a.Err, errors.ErrUnsupported) {
		t.Errorf("shared: %+v", a)
	}
	long := strings.Repeat("é", 64)
	grant(t, p, request(long, "a"))
	for _, req := range []engine.Request{
		request("", "a"),
		request(long+"x", "a"),
		{Term: engine.Term{Name: "x", StaleAfter: time.Second}},
		{Term: engine.Term{Name: "x", ID: "a~1"}},
	} {
		if a := ask(p, req); a.Outcome != engine.Refused || a.Err == nil {
			t.Errorf("%+v: %+v", req.Term, a)
		}
	}
}

// A try that finds the lock held, and waiting for it, must not write.
func TestBusyTryDoesNotWrite(t *testing.T) {
	h, path := newHost(), store(t)
	a, b := start(t, h, path), start(t, h, path)
	grant(t, a, request("x", "a"))
	wantBusy(t, b, waiting(request("x", "b"))) // takes its place in the line

	before := written(t, path)
	// Nor may it wait for whoever writes.
	if err := a.db.exec(begin); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		for _, req := range []engine.Request{request("x", "b"), waiting(request("x", "b"))} {
			if ans := b.Acquire(ctx, []engine.Request{req})[0]; ans.Outcome != engine.Busy {
				t.Fatalf("outcome %d (%v), want busy", ans.Outcome, ans.Err)
			}
		}
		cancel()
	}
	if err := a.db.exec("ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if got := written(t, path); got != before {
		t.Errorf("busy tries grew the log from %d to %d bytes", before, got)
	}
}

// written is the size of the log, which grows with every write until it is
// carried over.
func written(t testing.TB, path string) int64 {
	t.Helper()
	info, err := os.Stat(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

func TestCallsEndWithTheirContext(t *testing.T) {
	h, path := newHost(), store(t)
	a, b := start(t, h, path), start(t, h, path)
	term := grant(t, b, request("held", "b"))
	if err := a.db.exec(begin); err != nil { // a process that is stopped in the middle
		t.Fatal(err)
	}
	defer func() { _ = a.db.exec("ROLLBACK") }()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if ans := b.Acquire(ctx, []engine.Request{request("x", "b")})[0]; ans.Outcome != engine.Failed || !errors.Is(ans.Err, context.DeadlineExceeded) {
		t.Errorf("acquire: %+v", ans)
	}
	if s := b.Renew(ctx, []engine.Term{term})[0]; s.Health != engine.Unclear || s.Err == nil {
		t.Errorf("renew: %+v", s)
	}
	if r := b.Release(ctx, []engine.Term{term})[0]; r.Outcome != engine.Unconfirmed || r.Err == nil {
		t.Errorf("release: %+v", r)
	}
	if s := b.Explain(context.Background(), []engine.Term{term})[0]; s.Health != engine.Held {
		t.Errorf("a look has to wait for nobody: %+v", s)
	}
}

func TestTimeIsReadAfterTheWait(t *testing.T) {
	h, path := newHost(), store(t)
	a, b := start(t, h, path), start(t, h, path)
	if err := a.db.exec(begin); err != nil {
		t.Fatal(err)
	}
	var term engine.Term
	var wg sync.WaitGroup
	wg.Go(func() { term = grant(t, b, request("x", "b")) })
	// Whether it waits already or not: it is granted after this minute.
	h.pass(time.Minute)
	if err := a.db.exec("ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	h.pass(59 * time.Second)
	if got := wantBusy(t, a, request("x", "a")).Holder; got.Age != 59*time.Second || got.ID != term.ID {
		t.Errorf("%+v, want an age of 59s", got)
	}
}

func TestManyClientsInOneProcess(t *testing.T) {
	h, path := newHost(), store(t)
	const clients, rounds = 6, 30
	var mu sync.Mutex
	holder, last := "", int64(0)
	var wg sync.WaitGroup
	for c := range clients {
		p := start(t, h, path)
		label := fmt.Sprint("c", c)
		wg.Go(func() {
			for i := range rounds {
				req := engine.Request{Term: engine.Term{Name: "x", ID: fmt.Sprintf("%s~%d", label, i), StaleAfter: time.Hour}}
				var a engine.Answer
				for a.Outcome != engine.Granted {
					if a = ask(p, req); a.Outcome != engine.Granted && a.Outcome != engine.Busy {
						t.Errorf("%s: %+v", label, a)
						return
					}
				}
				mu.Lock()
				if holder != "" || a.Token <= last {
					t.Errorf("%s got token %d while %q held with %d", label, a.Token, holder, last)
				}
				holder, last = label, a.Token
				mu.Unlock()
				renew(p, req.Term)
				mu.Lock()
				holder = ""
				mu.Unlock()
				if r := release(p, req.Term); r.Outcome != engine.Removed {
					t.Errorf("%s: release %+v", label, r)
				}
			}
		})
	}
	wg.Wait()
}

// The file goes back in time, with the row of an earlier holder.
func TestRowFromThePastIsNotOurs(t *testing.T) {
	h, path := newHost(), store(t)
	a, b := start(t, h, path), start(t, h, path)
	old := grant(t, a, request("x", "a"))
	if err := a.db.exec("CREATE TABLE kept AS SELECT * FROM lock"); err != nil {
		t.Fatal(err)
	}
	release(a, old)
	term := grant(t, b, request("x", "b"))
	h.pass(time.Second)
	if err := a.db.exec("DELETE FROM lock; INSERT INTO lock SELECT * FROM kept"); err != nil {
		t.Fatal(err)
	}
	if s := renew(b, term); s.Health != engine.Gone || s.Reason != engine.LostRowGone {
		t.Errorf("renewal over a foreign row: %+v", s)
	}
	if r := release(b, term); r.Outcome != engine.Absent {
		t.Errorf("release of a foreign row: %+v", r)
	}
	if got := wantBusy(t, b, request("x", "b")).Holder; got.ID != old.ID || got.Age != time.Second {
		t.Errorf("the row was touched: %+v", got)
	}
	h.pass(time.Minute)
	if got := grant(t, b, request("x", "b")); got.Token <= term.Token {
		t.Errorf("token %d after %d", got.Token, term.Token)
	}
}

// A commit that fails may have happened all the same, and is never taken for an
// answer.
func TestFailedCommitIsNoAnswer(t *testing.T) {
	h, path := newHost(), store(t)
	p := start(t, h, path)
	held := grant(t, p, request("held", "a"))
	fail := func() { // from now on, until the connection is made anew
		t.Helper()
		if err := p.db.exec("PRAGMA foreign_keys = ON"); err != nil {
			t.Fatal(err)
		}
	}
	fault := "CREATE TABLE fault (a INTEGER REFERENCES meta (id) DEFERRABLE INITIALLY DEFERRED);"
	for _, on := range []string{"INSERT", "UPDATE", "DELETE"} {
		fault += fmt.Sprintf("CREATE TRIGGER fault_%s AFTER %s ON lock BEGIN INSERT INTO fault VALUES (2); END;", on, on)
	}
	if err := p.db.exec(fault); err != nil {
		t.Fatal(err)
	}
	fail()
	if a := ask(p, request("x", "a")); a.Outcome != engine.Unknown || !errors.Is(a.Err, errInDoubt) {
		t.Errorf("acquire: %+v", a)
	}
	grant(t, p, request("x", "a")) // on another connection
	fail()
	if s := renew(p, held); s.Health != engine.Unclear || s.Err == nil {
		t.Errorf("renew: %+v", s)
	}
	if s := renew(p, held); s.Health != engine.Held {
		t.Errorf("the next renewal: %+v", s)
	}
	fail()
	if r := release(p, held); r.Outcome != engine.Unconfirmed || r.Err == nil {
		t.Errorf("release: %+v", r)
	}
	if r := release(p, held); r.Outcome != engine.Removed {
		t.Errorf("the next release: %+v", r)
	}
}
