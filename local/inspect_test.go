package local

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex/engine"
)

func TestStatus(t *testing.T) {
	h, path := newHost(), store(t)
	p := start(t, h, path)
	ctx := context.Background()
	free, err := p.Inspect(ctx, "x")
	if want := (engine.Status{Name: "x", ID: engine.NameID("x"), Engine: "local", State: engine.StateFree}); err != nil || !reflect.DeepEqual(free, want) {
		t.Errorf("free: %+v, %v", free, err)
	}
	req := request("x", "a")
	req.Details = map[string]string{"k": "v"}
	since := h.day
	term := grant(t, p, req)
	for _, step := range []struct {
		age   time.Duration
		state engine.State
	}{{0, engine.StateHeld}, {21 * time.Second, engine.StateLate}, {61 * time.Second, engine.StateStale}} {
		h.pass(step.age - (h.at - time.Hour))
		want := engine.Status{
			Name: "x", ID: engine.NameID("x"), Engine: "local", State: step.state,
			Holder: "a", Term: term.ID, Token: term.Token, Since: since,
			HeartbeatAge: step.age, Remaining: max(0, time.Minute-step.age),
			Heartbeat: 5 * time.Second, AlertAfter: 20 * time.Second, StaleAfter: time.Minute,
			Details: req.Details,
		}
		if got, err := p.Inspect(ctx, "x"); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("after %v: %+v, %v\nwant %+v", step.age, got, err, want)
		}
	}
}

func TestListAndHistoryInPages(t *testing.T) {
	h, path := newHost(), store(t)
	p := start(t, h, path)
	ctx := context.Background()
	const n = 2*pageSize + 3
	batch := make([]engine.Request, n)
	terms := make([]engine.Term, n)
	for i := range batch {
		batch[i] = request(fmt.Sprintf("n%05d", n-1-i), "a")
		terms[i] = batch[i].Term
	}
	p.Acquire(ctx, batch)
	i := 0
	for s, err := range p.List(ctx) {
		if err != nil || s.Name != fmt.Sprintf("n%05d", i) || s.State != engine.StateHeld {
			t.Fatalf("lock %d: %+v, %v", i, s, err)
		}
		i++
	}
	if i != n {
		t.Errorf("%d locks, want %d", i, n)
	}
	p.Release(ctx, terms)
	i = 0
	for past, err := range p.History(ctx, "") {
		if err != nil || past.Name != fmt.Sprintf("n%05d", i) || past.End != engine.EndReleased || past.Holder != "a" {
			t.Fatalf("hold %d: %+v, %v", i, past, err)
		}
		i++
	}
	if i != n {
		t.Errorf("%d holds, want %d", i, n)
	}
	// An early end leaves nothing behind.
	for range p.History(ctx, "") {
		break
	}
	grant(t, p, request("x", "a"))
}

func TestHistoryTellsHowHoldsEnded(t *testing.T) {
	h, path := newHost(), store(t)
	p := start(t, h, path)
	ctx := context.Background()
	begun := h.day
	released := grant(t, p, request("x", "a"))
	h.pass(time.Second)
	release(p, released)
	stale := grant(t, p, request("x", "b"))
	h.pass(2 * time.Minute)
	forced := grant(t, p, request("x", "c"))
	seen, _ := p.Inspect(ctx, "x")
	if err := p.ForceRelease(ctx, seen, engine.Force{By: "op", Reason: "why", Now: true}); err != nil {
		t.Fatal(err)
	}
	other := grant(t, p, request("y", "d"))
	release(p, other)

	end := begun.Add(time.Second + 2*time.Minute)
	want := []engine.PastHold{
		{Name: "x", Holder: "c", Term: forced.ID, Token: forced.Token, AcquiredAt: end, EndedAt: end, End: engine.EndForced, By: "op", Reason: "why"},
		{Name: "x", Holder: "b", Term: stale.ID, Token: stale.Token, AcquiredAt: begun.Add(time.Second), EndedAt: end, End: engine.EndTakenOver, By: "c"},
		{Name: "x", Holder: "a", Term: released.ID, Token: released.Token, AcquiredAt: begun, EndedAt: begun.Add(time.Second), End: engine.EndReleased},
	}
	var got []engine.PastHold
	for past, err := range p.History(ctx, "x") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, past)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("history\n%+v\nwant\n%+v", got, want)
	}
	if s := renew(p, forced); s != (engine.Standing{Health: engine.Gone, Reason: engine.LostReleased, By: "op"}) {
		t.Errorf("forced: %+v", s)
	}
	if s := renew(p, released); s != (engine.Standing{Health: engine.Gone}) {
		t.Errorf("released: %+v", s)
	}
}

func TestHistoryEnds(t *testing.T) {
	p := start(t, newHost(), store(t))
	if err := p.db.exec(fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < %d)
		INSERT INTO event SELECT i, 'old', 'o~1', 1, 1, 1, 'released', '', '' FROM n`, keepEvents+2*tidyEvery)); err != nil {
		t.Fatal(err)
	}
	for range tidyEvery {
		release(p, grant(t, p, request("x", "a")))
	}
	var n int64
	if err := p.db.row("SELECT count(*) FROM event").scan(&n); err != nil || n < keepEvents || n > keepEvents+tidyEvery {
		t.Errorf("%d holds are kept (%v), want %d or a little more", n, err, keepEvents)
	}
}

func TestForceRelease(t *testing.T) {
	h, path := newHost(), store(t)
	a, b := start(t, h, path), start(t, h, path)
	ctx := context.Background()
	term := grant(t, a, request("x", "a"))
	seen, _ := b.Inspect(ctx, "x")

	// Asking: the holder learns it from its next renewal and is free to go on.
	if err := b.ForceRelease(ctx, seen, engine.Force{By: "op", Reason: "why"}); err != nil {
		t.Fatal(err)
	}
	if s := renew(a, term); s != (engine.Standing{Health: engine.Held, Stop: true, StopBy: "op"}) {
		t.Errorf("renewal: %+v", s)
	}
	if s, _ := b.Inspect(ctx, "x"); !s.StopAsked {
		t.Error("the status does not show it")
	}
	wantBusy(t, b, request("x", "b"))
	release(a, term)
	for past := range b.History(ctx, "x") {
		if past.End != engine.EndForced || past.By != "op" || past.Reason != "why" {
			t.Errorf("history: %+v", past)
		}
	}

	// Aimed at the term that was shown.
	if err := b.ForceRelease(ctx, seen, engine.Force{Now: true}); !errors.Is(err, engine.ErrGone) {
		t.Errorf("free: %v", err)
	}
	next := grant(t, a, request("x", "a"))
	if err := b.ForceRelease(ctx, seen, engine.Force{Now: true}); !errors.Is(err, engine.ErrChanged) {
		t.Errorf("changed hands: %v", err)
	}
	if s := renew(a, next); s.Health != engine.Held || s.Stop {
		t.Errorf("somebody else's hold: %+v", s)
	}
}
