//go:build interop

package interop

import (
	"testing"
	"time"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// slack is what a busy machine may add to a poll interval. Without a release the
// other side would have to wait for the threshold, which is longer.
const slack = 5 * time.Second

func TestGoReleasesAndPythonGoesOn(t *testing.T) {
	onBothTables(t, func(t *testing.T, dsn string) {
		g := open(t, dsn, "go-1", nil, pgmutex.Options{})
		p := startPeer(t, dsn, "job", "python-1", within(agreed))
		h := g.take(t, "job")
		p.wait()
		p.await("contended", 3) // it has polled, and found the lock held each time
		if !p.silent() {
			t.Fatal("Python's wait is over before the release")
		}
		released := time.Now()
		must(t, h.Release(t.Context()))
		p.granted()
		if took := time.Since(released); took > 100*time.Millisecond+slack {
			t.Errorf("Python polls every 0.1 s and needed %v", took)
		}
		if got := holderOf(t, dsn, "job"); got != "python-1" {
			t.Errorf("the row is %q's", got)
		}
	})
}

func TestPythonReleasesAndGoGoesOn(t *testing.T) {
	onBothTables(t, func(t *testing.T, dsn string) {
		const poll = 200 * time.Millisecond
		g := open(t, dsn, "go-1", nil, pgmutex.Options{PollInterval: poll})
		p := startPeer(t, dsn, "job", "python-1", within(agreed))
		if !p.try() {
			t.Fatal("Python did not get a free lock")
		}
		w := g.wait(t, "job")
		if happened(w.done) {
			t.Fatalf("Go's wait is over before the release: %v", w.err)
		}
		before := pgtest.One[time.Time](t, dsn, "SELECT clock_timestamp()")
		p.do("release", nil)
		after := pgtest.One[time.Time](t, dsn, "SELECT clock_timestamp()")
		at := w.granted(t).Info().AcquiredAt
		if at.Before(before) || at.After(after.Add(poll+slack)) {
			t.Errorf("Python released between %v and %v, Go acquired at %v and polls every %v", before, after, at, poll)
		}
	})
}

// TestPythonStandsInNoLine: a Python process that waits is not seen, by us or by
// anybody; ours form a line.
func TestPythonStandsInNoLine(t *testing.T) {
	t.Parallel()
	dsn := ours(t)
	g, second := open(t, dsn, "go-1", nil, pgmutex.Options{}), open(t, dsn, "go-2", nil, pgmutex.Options{})
	h := g.take(t, "job")
	p := startPeer(t, dsn, "job", "python-1", within(agreed))
	p.wait()
	if s, err := g.Inspect(t.Context(), "job"); err != nil || s.Waiters != 0 {
		t.Errorf("%d wait, %v; only Python does", s.Waiters, err)
	}
	w := second.wait(t, "job")
	pgtest.WaitFor(t, "the Go waiter to be seen", func() bool {
		s, err := g.Inspect(t.Context(), "job")
		must(t, err)
		return s.Waiters == 1
	})
	must(t, h.Release(t.Context()))
	// Either may be first; the other one comes after it.
	select {
	case <-w.done:
		must(t, w.granted(t).Release(t.Context()))
		p.granted()
	case r := <-p.answers:
		p.clean(r)
		p.do("release", nil)
		w.granted(t)
	}
}
