package memory_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/memory"
)

func TestDescription(t *testing.T) {
	d := memory.New().Engine().Describe()
	if d.Name != "memory" || d.NameLimit != 64 || d.NameBytes || !d.Shared || !d.PerHoldTiming || !d.Tokens ||
		d.Elapsed != nil || d.TrustCap != 0 || d.MinStaleAfter != 0 || d.MaxStaleAfter != 0 || d.MaxHolds != 0 {
		t.Errorf("%+v", d)
	}
}

func TestInspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		p, q := open(t, s, "p"), open(t, s, "q")
		req := p.request("nightly")
		req.Details = map[string]string{"host": "h1"}
		got := p.granted(p.ask(req))
		q.wait("nightly")
		time.Sleep(30 * time.Second)
		status := q.inspect("nightly")
		if status.State != engine.StateHeld || status.ID <= 0 || status.Engine != "memory" || status.Holder != "p" ||
			status.Term != req.Term.ID || status.Token != got.Token || !status.Since.Equal(got.AcquiredAt) ||
			status.HeartbeatAge != 30*time.Second || status.Remaining != stale-30*time.Second ||
			status.Heartbeat != 10*time.Second || status.AlertAfter != 30*time.Second || status.StaleAfter != stale ||
			status.Waiters != 1 || status.Details["host"] != "h1" {
			t.Errorf("%+v", status)
		}
		time.Sleep(1)
		equal(t, "state", q.inspect("nightly").State, engine.StateLate)
		time.Sleep(stale)
		status = q.inspect("nightly")
		equal(t, "state", status.State, engine.StateStale)
		equal(t, "remaining", status.Remaining, 0)
		free := q.inspect("free")
		if free.State != engine.StateFree || free.Name != "free" || free.Term != "" || !free.Since.IsZero() {
			t.Errorf("%+v", free)
		}
	})
}

// The ids are those of the reference: SHA-256 of the name, its first eight bytes
// big-endian, without the top bit.
func TestID(t *testing.T) {
	p := open(t, memory.New(), "p")
	// echo -n abc | sha256sum begins with ba7816bf8f01cfea.
	equal(t, "id", p.inspect("abc").ID, 0x3a7816bf8f01cfea)
}

func TestListAndHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		p := open(t, s, "p")
		terms := []engine.Term{p.hold("c"), p.hold("a"), p.hold("b")}
		var names []string
		for _, status := range p.list() {
			names = append(names, status.Name)
		}
		same(t, "list", names, "a", "b", "c")
		for _, term := range terms {
			time.Sleep(time.Second)
			p.release(term)
		}
		same(t, "list", func() (names []string) {
			for _, past := range p.history("") {
				names = append(names, past.Name)
			}
			return names
		}(), "b", "a", "c")
		past := p.history("a")
		equal(t, "entries", len(past), 1)
		if h := past[0]; h.Holder != "p" || h.Term != terms[1].ID || h.Token == 0 || h.End != engine.EndReleased ||
			h.EndedAt.Sub(h.AcquiredAt) != 2*time.Second || h.By != "" {
			t.Errorf("%+v", h)
		}
		for range p.Engine.(engine.Inspector).History(t.Context(), "") {
			break // an early end is no trouble
		}
		equal(t, "explanation of an own release", p.explain(terms[0]), engine.Standing{Health: engine.Gone})
		equal(t, "explanation of the unheard-of", p.explain(engine.Term{Name: "a", ID: "p~none"}),
			engine.Standing{Health: engine.Gone, Reason: engine.LostRowGone})
	})
}

func TestGuard(t *testing.T) {
	p := open(t, memory.New(), "p")
	term := p.hold("x")
	exec := func(context.Context, string, ...any) (int64, error) {
		t.Error("exec was called")
		return 0, nil
	}
	guard := p.Engine.(engine.Guarder).Guard
	if err := guard(t.Context(), term, exec); err != nil {
		t.Errorf("held: %v", err)
	}
	p.release(term)
	if err := guard(t.Context(), term, exec); !errors.Is(err, engine.ErrGone) {
		t.Errorf("released: %v", err)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	p := open(t, memory.New(), "p")
	first := p.hold("x")
	p.release(first)
	var last engine.Term
	for range 25_000 {
		last = p.hold("x")
		p.release(last)
	}
	list := p.history("")
	if len(list) < 10_000 || len(list) > 20_000 || list[0].Term != last.ID {
		t.Errorf("%d entries, the newest is %+v", len(list), list[0])
	}
	equal(t, "the newest", p.explain(last).Reason, "")
	equal(t, "the oldest", p.explain(first).Reason, engine.LostRowGone)
}
