package local

import (
	"context"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex/engine"
)

// queue returns a held lock and clients that wait for it, in their order.
func queue(t *testing.T, n int) (h *host, holder *process, term engine.Term, line []*process) {
	t.Helper()
	h = newHost()
	path := store(t)
	holder = start(t, h, path)
	term = grant(t, holder, request("x", "holder"))
	for i := range n {
		p := start(t, h, path)
		if got := wantBusy(t, p, waiting(request("x", "w"))).Place; got != i+1 {
			t.Fatalf("place %d, want %d", got, i+1)
		}
		line = append(line, p)
	}
	return h, holder, term, line
}

func TestFirstComeFirstServed(t *testing.T) {
	_, holder, term, line := queue(t, 3)
	release(holder, term)
	for i, p := range line {
		for _, later := range line[i+1:] {
			if got := wantBusy(t, later, waiting(request("x", "w"))); got.Holder != nil {
				t.Errorf("a free lock is held by %+v", got.Holder)
			}
		}
		release(p, grant(t, p, waiting(request("x", "w"))))
	}
}

func TestTryMayOvertake(t *testing.T) {
	_, holder, term, line := queue(t, 1)
	release(holder, term)
	mine := grant(t, holder, request("x", "barger"))
	if got := wantBusy(t, line[0], waiting(request("x", "w"))).Place; got != 1 {
		t.Errorf("place %d", got)
	}
	release(holder, mine)
	grant(t, line[0], waiting(request("x", "w")))
}

func TestWhoDoesNotAnswerIsPassedOver(t *testing.T) {
	h, holder, term, line := queue(t, 3)
	release(holder, term) // offered to the first
	wantBusy(t, line[1], waiting(request("x", "w")))
	h.pass(offerTime)
	wantBusy(t, line[1], waiting(request("x", "w")))
	h.pass(1)
	// The third finds that the first is out of time; the second has its own.
	if got := wantBusy(t, line[2], waiting(request("x", "w"))).Place; got != 2 {
		t.Errorf("place %d", got)
	}
	h.pass(offerTime)
	wantBusy(t, line[2], waiting(request("x", "w")))
	mine := grant(t, line[1], waiting(request("x", "w")))

	// Passed over is not thrown out: it has its turn again, before the third.
	if got := wantBusy(t, line[0], waiting(request("x", "w"))).Place; got != 1 {
		t.Errorf("place %d", got)
	}
	release(line[1], mine)
	wantBusy(t, line[2], waiting(request("x", "w")))
	grant(t, line[0], waiting(request("x", "w")))
}

func TestAnyNumberOfDeadCostsOneOffer(t *testing.T) {
	h, holder, term, line := queue(t, 6)
	h.pass(time.Second)
	release(holder, term)
	last := line[5]
	wantBusy(t, last, waiting(request("x", "w")))
	wantBusy(t, line[3], waiting(request("x", "w"))) // alive, and before the last
	h.pass(offerTime + 1)
	if got := wantBusy(t, last, waiting(request("x", "w"))).Place; got != 2 {
		t.Errorf("place %d, want the second after the other one that is alive", got)
	}
	h.pass(offerTime + 1)
	grant(t, last, waiting(request("x", "w")))
}

func TestOfferStartsWithTheReleaseNotBefore(t *testing.T) {
	h, holder, term, line := queue(t, 2)
	// The lock goes stale and is offered, but the holder comes back.
	h.pass(time.Minute + 1)
	renewed := waiting(request("x", "w"))
	renewed.Judge = false
	wantBusy(t, line[1], renewed)
	renew(holder, term)
	h.pass(5 * time.Second)
	wantBusy(t, line[0], renewed)
	release(holder, term)
	wantBusy(t, line[1], waiting(request("x", "w")))
	grant(t, line[0], waiting(request("x", "w")))
}

func TestWhoIsNotSeenDoesNotCount(t *testing.T) {
	h, holder, term, line := queue(t, 2)
	h.pass(seenFor + 1)
	if got := wantBusy(t, line[1], waiting(request("x", "w"))).Place; got != 1 {
		t.Errorf("place %d behind somebody who was not seen for %v", got, seenFor)
	}
	renew(holder, term)
	s, err := holder.Inspect(context.Background(), "x")
	if err != nil || s.Waiters != 1 {
		t.Errorf("%d waiters (%v), want 1", s.Waiters, err)
	}
	release(holder, term)
	grant(t, line[1], waiting(request("x", "w")))
}

func TestLeaving(t *testing.T) {
	h, holder, term, line := queue(t, 3)
	release(holder, term) // offered to the first
	if err := line[0].Leave(context.Background(), []string{"x", "nobody"}); err != nil {
		t.Fatal(err)
	}
	wantBusy(t, line[2], waiting(request("x", "w")))
	h.pass(offerTime + 1)
	// The offer went on to the second with its full time, and that is over.
	if err := line[1].Close(context.Background()); err != nil { // leaves as well
		t.Fatal(err)
	}
	grant(t, line[2], waiting(request("x", "w")))
	var left int64
	if err := holder.db.row("SELECT count(*) FROM waiter").scan(&left); err != nil || left != 0 {
		t.Errorf("%d places are left (%v)", left, err)
	}
}

func TestPlacesOfTheDeadAreForgotten(t *testing.T) {
	h, holder, term, line := queue(t, 2)
	h.pass(forgetAfter + 1)
	renew(holder, term)
	p := start(t, h, holder.path)
	wantBusy(t, p, waiting(request("x", "w")))
	var left int64
	if err := holder.db.row("SELECT count(*) FROM waiter").scan(&left); err != nil || left != 1 {
		t.Errorf("%d places (%v), want the new one", left, err)
	}
	// Whoever was taken for dead starts at the end.
	if got := wantBusy(t, line[0], waiting(request("x", "w"))).Place; got != 2 {
		t.Errorf("place %d", got)
	}
}

func TestLineOfAnotherBootIsNothing(t *testing.T) {
	h, _, _, line := queue(t, 2)
	path := line[0].path
	h.reboot("boot-2")
	p := start(t, h, path)
	grant(t, p, waiting(request("x", "w")))
}
