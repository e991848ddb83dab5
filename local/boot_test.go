package local

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex/engine"
)

func TestRowOfAnotherBootIsFreeAtOnce(t *testing.T) {
	h, path := newHost(), store(t)
	old := grant(t, start(t, h, path), request("x", "a"))
	h.reboot("boot-2")
	p := start(t, h, path)

	s, err := p.Inspect(context.Background(), "x")
	if err != nil || s.State != engine.StateStale || s.Holder != "a" || s.Remaining != 0 || s.HeartbeatAge != time.Minute {
		t.Errorf("shown as %+v, %v", s, err)
	}
	// Whoever waits takes it as well, without having watched it.
	req := waiting(request("x", "b"))
	req.Judge = false
	ans := ask(p, req)
	if ans.Outcome != engine.Granted || ans.TookOver == nil || ans.TookOver.ID != old.ID {
		t.Fatalf("%+v", ans)
	}
	if ans.Token <= old.Token {
		t.Errorf("token %d after %d", ans.Token, old.Token)
	}
}

func TestRowOfAnUnknownBootHasToBeWatched(t *testing.T) {
	for name, boots := range map[string][2]string{
		"the holder's": {"", "boot-1"}, "ours": {"boot-1", ""}, "both": {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			h, path := newHost(), store(t)
			h.id = boots[0]
			term := grant(t, start(t, h, path), request("x", "a"))
			h.id = boots[1]
			p := start(t, h, path)
			h.pass(time.Hour)

			seen := wantBusy(t, p, request("x", "b")).Holder
			if seen.Age != 0 {
				t.Errorf("age %v: it would shorten the watch", seen.Age)
			}
			if s, err := p.Inspect(context.Background(), "x"); err != nil || s.State != engine.StateLate {
				t.Errorf("shown as %+v, %v", s, err)
			}
			take := request("x", "b")
			take.Judge, take.Take = false, seen.Heartbeat
			if got := grant(t, p, take); got.Token <= term.Token {
				t.Errorf("token %d after %d", got.Token, term.Token)
			}
		})
	}
}

// A loss of power takes back what was not forced to the disk, with the tokens
// of the last grants. The file is put back here as it would be found then.
func TestTokensRiseAcrossALossOfPower(t *testing.T) {
	h, path := newHost(), store(t)
	p := start(t, h, path)
	release(p, grant(t, p, request("x", "a")))
	p.Close(context.Background())
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	p = start(t, h, path)
	var last engine.Term
	for range 300 {
		last = grant(t, p, request("x", "a"))
		release(p, last)
	}
	p.Close(context.Background())

	if err := os.WriteFile(path, before, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"-wal", "-shm"} {
		if err := os.Remove(path + f); err != nil {
			t.Fatal(err)
		}
	}
	h.reboot("boot-2")
	p = start(t, h, path)
	next := grant(t, p, request("x", "b"))
	if next.Token <= last.Token {
		t.Fatalf("token %d after %d", next.Token, last.Token)
	}
	// Once for each boot.
	if more := grant(t, p, request("y", "b")); more.Token != next.Token+1 {
		t.Errorf("token %d right after %d", more.Token, next.Token)
	}
	q := start(t, h, path)
	if more := grant(t, q, request("z", "b")); more.Token != next.Token+2 {
		t.Errorf("token %d right after %d", more.Token, next.Token+1)
	}
}

func TestWhatHasToBeOnTheDisk(t *testing.T) {
	h, path := newHost(), store(t)
	synchronous := func(p *process) (level int64) {
		if err := p.db.row("PRAGMA synchronous").scan(&level); err != nil {
			t.Fatal(err)
		}
		return level
	}
	p := start(t, h, path)
	grant(t, p, request("x", "a"))
	if got := synchronous(p); got != 1 {
		t.Errorf("synchronous is %d, want 1 (NORMAL)", got)
	}
	h.id = ""
	p = start(t, h, path)
	first := grant(t, p, request("y", "a"))
	if got := synchronous(p); got != 2 {
		t.Errorf("synchronous is %d without a boot, want 2 (FULL)", got)
	}
	if second := grant(t, p, request("z", "a")); second.Token != first.Token+1 {
		t.Errorf("token %d right after %d", second.Token, first.Token)
	}
}

func TestBootOfThisMachine(t *testing.T) {
	if runtime.GOOS != "linux" && runtime.GOOS != "darwin" {
		t.Skip("there is no local store here")
	}
	a, b := bootID(), bootID()
	if a != b {
		t.Errorf("boot %q, then %q", a, b)
	}
	before := sinceBoot()
	if after := sinceBoot(); before <= 0 || after < before {
		t.Errorf("%v since boot, then %v", before, after)
	}
}

func TestElapsedNeverFalls(t *testing.T) {
	last, start := elapsed(), time.Now()
	for time.Since(start) < 5*time.Millisecond {
		now := elapsed()
		if now < last {
			t.Fatalf("%v after %v", now, last)
		}
		last = now
	}
	if n := testing.AllocsPerRun(100, func() { elapsed() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestStoreIsDurableBeforeItIsUsed(t *testing.T) {
	// The making of the store is carried out with synchronous=FULL, so the log's
	// directory entry is on the disk as well. What can be seen of that here is
	// that it is back to NORMAL afterwards and the first token is 1.
	h := newHost()
	p := start(t, h, filepath.Join(t.TempDir(), "new.db"))
	if term := grant(t, p, request("x", "a")); term.Token != 1 {
		t.Errorf("the first token is %d", term.Token)
	}
}

func BenchmarkElapsed(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		elapsed()
	}
}
