package monitor

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/memory"
)

// A scene is a store, a receiver of notices, and monitors that have labels.
type scene struct {
	t     *testing.T
	store *memory.Store

	mu      sync.Mutex
	notices []Notice
	onSend  func(ctx context.Context, n Notice) error
}

func newScene(t *testing.T) *scene { return &scene{t: t, store: memory.New()} }

func (s *scene) Name() string { return "test" }

// Send implements Sink.
func (s *scene) Send(ctx context.Context, n Notice) error {
	s.mu.Lock()
	s.notices = append(s.notices, n)
	act := s.onSend
	s.mu.Unlock()
	if act != nil {
		return act(ctx, n)
	}
	return ctx.Err()
}

func (s *scene) client(label string) *pgmutex.Client {
	s.t.Helper()
	c, err := s.store.Open(s.t.Context(), &pgmutex.Options{HolderID: label})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = c.Close(ended) // its holds are nobody's any more
	})
	return c
}

// monitor starts a monitor; stop stops it as a signal does.
func (s *scene) monitor(label string, after time.Duration) (stop func()) {
	s.t.Helper()
	c, err := s.store.Open(s.t.Context(), &pgmutex.Options{HolderID: label, StaleAfter: 30 * time.Second})
	if err != nil {
		s.t.Fatal(err)
	}
	m, err := New(Config{
		Client: c, Lock: "pgmutex.monitor", AlertAfter: after, Every: 5 * time.Second,
		Sinks: []Sink{s}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := m.Run(ctx); err != nil {
			s.t.Errorf("%s: %v", label, err)
		}
	}()
	stop = func() {
		cancel()
		<-done
		_ = c.Close(context.Background())
	}
	s.t.Cleanup(stop)
	time.Sleep(time.Second)
	return stop
}

func (s *scene) hold(label, name string) *pgmutex.Hold {
	s.t.Helper()
	h, err := s.client(label).Acquire(s.t.Context(), name)
	if err != nil {
		s.t.Fatal(err)
	}
	return h
}

func (s *scene) cut(label string)  { s.store.SetFaults(label, memory.Faults{Partitioned: true}) }
func (s *scene) mend(label string) { s.store.SetFaults(label, memory.Faults{}) }

// told returns the events so far, such as "fired job".
func (s *scene) told() []string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []string
	for _, n := range s.notices {
		list = append(list, n.Event+" "+n.Lock)
	}
	return list
}

func (s *scene) want(when string, events ...string) {
	s.t.Helper()
	if got := s.told(); !slices.Equal(got, events) {
		s.t.Errorf("%s: told %q, want %q", when, got, events)
	}
}

func run(t *testing.T, f func(s *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(newScene(t)) })
}

// TestOnce: one alert for a hold, and one end of it, however often it falls silent
// within an hour.
func TestOnce(t *testing.T) {
	run(t, func(s *scene) {
		s.monitor("m", 0)
		s.hold("a", "job") // heartbeat 10 s, alert 30 s
		time.Sleep(5 * time.Minute)
		s.want("all is well")

		s.cut("a")
		time.Sleep(19 * time.Second)
		s.want("before the threshold")
		time.Sleep(12 * time.Second)
		s.want("after the threshold", "fired job")
		time.Sleep(time.Minute)
		s.mend("a")
		time.Sleep(20 * time.Second)
		s.want("heard again", "fired job", "cleared job")
		for range 10 {
			s.cut("a")
			time.Sleep(time.Minute)
			s.mend("a")
			time.Sleep(time.Minute)
		}
		s.want("on and off", "fired job", "cleared job")

		time.Sleep(time.Hour)
		s.cut("a")
		time.Sleep(time.Minute)
		s.want("an hour later", "fired job", "cleared job", "fired job")

		n := s.notices[0]
		if n.ID == "" || n.Holder != "a" || n.Term == "" || n.HeartbeatAge < 30 || n.HeartbeatAge > 32 || n.Threshold != 30 {
			t.Errorf("got %+v", n)
		}
		if s.notices[1].Reason != heardAgain || s.notices[1].ID != n.ID {
			t.Errorf("got %+v", s.notices[1])
		}
	})
}

// TestTakenOver: the end of the alert says who holds the lock instead, and the new
// hold can alert itself.
func TestTakenOver(t *testing.T) {
	run(t, func(s *scene) {
		s.monitor("m", 0)
		s.hold("a", "job")
		s.cut("a")
		time.Sleep(11 * time.Minute) // stale
		s.want("stale", "fired job")
		s.hold("b", "job")
		time.Sleep(10 * time.Second)
		s.want("taken over", "fired job", "cleared job")
		if n := s.notices[1]; n.Reason != gone || n.NextHolder != "b" || n.Holder != "a" {
			t.Errorf("got %+v", n)
		}
		s.cut("b")
		time.Sleep(time.Minute)
		s.want("the next one", "fired job", "cleared job", "fired job")
	})
}

// TestFloor: an alert below twice the promised heartbeat would be about nothing.
func TestFloor(t *testing.T) {
	run(t, func(s *scene) {
		s.monitor("m", time.Second)
		s.hold("a", "job")
		time.Sleep(10 * time.Minute)
		s.want("all is well")
		s.cut("a")
		time.Sleep(21 * time.Second)
		s.want("twice the heartbeat", "fired job")
	})
}

// TestOutage: what kept the monitor from the store has kept the holders too.
func TestOutage(t *testing.T) {
	run(t, func(s *scene) {
		s.monitor("m", 0)
		s.hold("a", "job")
		time.Sleep(time.Minute)
		s.store.SetFaults("", memory.Faults{Partitioned: true})
		time.Sleep(3 * time.Minute)
		s.mend("")
		s.cut("a")
		time.Sleep(12 * time.Second) // the monitor is the first that gets there
		s.mend("a")
		time.Sleep(5 * time.Minute)
		s.want("after the outage")
		s.cut("a")
		time.Sleep(time.Minute)
		s.want("a silent holder", "fired job")
	})
}

// TestSeveralMonitors: whoever tells, it is told once.
func TestSeveralMonitors(t *testing.T) {
	run(t, func(s *scene) {
		stop1 := s.monitor("m1", 0)
		s.monitor("m2", 0)
		s.monitor("m3", 0)
		s.hold("a", "job")
		s.hold("b", "other")
		s.cut("a")
		time.Sleep(2 * time.Minute)
		s.want("three monitors", "fired job")

		stop1()
		time.Sleep(2 * time.Minute)
		s.want("the next one knows", "fired job")
		s.cut("b")
		time.Sleep(time.Minute)
		s.want("and tells", "fired job", "fired other")
		s.mend("a")
		time.Sleep(time.Minute)
		s.want("also ends", "fired job", "fired other", "cleared job")
	})
}

// TestDeadMonitor: what falls due while nobody tells is told by the next one.
func TestDeadMonitor(t *testing.T) {
	run(t, func(s *scene) {
		s.monitor("m1", 0)
		s.monitor("m2", 0)
		s.hold("a", "first")
		s.hold("b", "second")
		s.cut("a")
		time.Sleep(time.Minute)
		s.want("the first tells", "fired first")

		s.cut("b")
		time.Sleep(20 * time.Second)
		s.cut("m1")
		time.Sleep(25 * time.Second) // due, and nobody tells
		s.mend("a")
		s.want("nobody tells", "fired first")
		time.Sleep(time.Minute)
		got := s.told()
		slices.Sort(got)
		if want := []string{"cleared first", "fired first", "fired second"}; !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
		s.mend("m1")
		time.Sleep(10 * time.Minute)
		if got := s.told(); len(got) != 3 {
			t.Errorf("once the first is back: %q", got)
		}
	})
}

// TestRestart: a monitor that begins anew reads what has been told.
func TestRestart(t *testing.T) {
	run(t, func(s *scene) {
		stop := s.monitor("m1", 0)
		s.hold("a", "job")
		s.hold("b", "other")
		s.cut("a")
		time.Sleep(time.Minute)
		s.cut("b")
		time.Sleep(time.Minute)
		s.mend("b")
		time.Sleep(time.Minute)
		s.want("before", "fired job", "fired other", "cleared other")
		stop()
		s.monitor("m2", 0)
		s.cut("b") // again, within the hour
		time.Sleep(2 * time.Minute)
		s.want("after", "fired job", "fired other", "cleared other")
		s.mend("a")
		time.Sleep(time.Minute)
		s.want("its end", "fired job", "fired other", "cleared other", "cleared job")
		s.mend("b")
		time.Sleep(time.Hour)
		s.cut("b")
		time.Sleep(time.Minute)
		s.want("an hour later", "fired job", "fired other", "cleared other", "cleared job", "fired other")
	})
}

// TestToldTwice: the one moment in which an alert is repeated, by the same id.
func TestToldTwice(t *testing.T) {
	run(t, func(s *scene) {
		s.monitor("m1", 0)
		s.monitor("m2", 0)
		s.hold("a", "job")
		s.onSend = func(context.Context, Notice) error { // taken, and then the monitor is cut off
			s.cut("m1")
			return nil
		}
		s.cut("a")
		time.Sleep(5 * time.Minute)
		s.want("no line in the store", "fired job", "fired job")
		if s.notices[0].ID != s.notices[1].ID {
			t.Errorf("ids %q and %q", s.notices[0].ID, s.notices[1].ID)
		}
	})
}

// TestInterrupted: what a monitor could not finish telling, because it lost the
// lock, is told when somebody has the lock again, be it the same monitor.
func TestInterrupted(t *testing.T) {
	run(t, func(s *scene) {
		s.monitor("m1", 0)
		s.hold("a", "job")
		first := true
		s.onSend = func(ctx context.Context, _ Notice) error {
			if !first {
				return nil
			}
			first = false
			s.cut("m1")
			<-ctx.Done()
			return ctx.Err()
		}
		s.cut("a")
		time.Sleep(2 * time.Minute)
		s.want("interrupted", "fired job")
		s.mend("m1")
		time.Sleep(2 * time.Minute)
		s.want("told", "fired job", "fired job")
	})
}

// TestStoreFails: a store that refuses everything is asked again at the next look,
// not at once; what was told is not told again.
func TestStoreFails(t *testing.T) {
	run(t, func(s *scene) {
		s.monitor("m", 0)
		s.hold("a", "job")
		s.onSend = func(context.Context, Notice) error {
			s.store.SetFaults("m", memory.Faults{Fail: errors.New("out of disk space")})
			return nil
		}
		s.cut("a")
		time.Sleep(time.Minute)
		s.mend("m")
		time.Sleep(5 * time.Minute)
		s.want("mended", "fired job")
		lines := 0
		for past, err := range s.client("reader").History(s.t.Context(), "") {
			if err != nil {
				s.t.Fatal(err)
			}
			if strings.HasPrefix(past.Name, firedPrefix) {
				lines++
			}
		}
		if lines != 1 {
			s.t.Errorf("%d lines in the store", lines)
		}
	})
}

// TestBackAgain: a monitor that tells again does not repeat what others have told
// meanwhile.
func TestBackAgain(t *testing.T) {
	run(t, func(s *scene) {
		s.monitor("m1", 0)
		stop2 := s.monitor("m2", 0)
		s.hold("a", "job")
		s.hold("b", "other")
		s.cut("a")
		time.Sleep(time.Minute)
		s.cut("m1")
		time.Sleep(time.Minute)
		s.mend("m1")
		s.cut("b")
		s.mend("a")
		time.Sleep(time.Minute)
		s.want("the second tells", "fired job", "cleared job", "fired other")
		stop2()
		time.Sleep(time.Minute)
		s.want("the first has nothing to add", "fired job", "cleared job", "fired other")
		s.mend("b")
		time.Sleep(time.Minute)
		s.want("but what is new", "fired job", "cleared job", "fired other", "cleared other")
	})
}

// TestGivenUp: a receiver that refuses is not asked again, by nobody.
func TestGivenUp(t *testing.T) {
	run(t, func(s *scene) {
		stop := s.monitor("m1", 0)
		s.hold("a", "job")
		s.onSend = func(context.Context, Notice) error { return errors.New("refused") }
		s.cut("a")
		time.Sleep(time.Minute)
		stop()
		s.monitor("m2", 0)
		time.Sleep(time.Minute)
		s.want("refused", "fired job")
	})
}

// TestStopWhileTelling: the lock is not given to another monitor before what is
// being told has been told.
func TestStopWhileTelling(t *testing.T) {
	run(t, func(s *scene) {
		stop := s.monitor("m1", 0)
		s.monitor("m2", 0)
		s.hold("a", "job")
		s.onSend = func(ctx context.Context, _ Notice) error {
			time.Sleep(3 * time.Second)
			return ctx.Err()
		}
		s.cut("a")
		time.Sleep(31*time.Second - 500*time.Millisecond)
		stop()
		time.Sleep(5 * time.Minute)
		s.want("stopped meanwhile", "fired job")
	})
}

// TestThreshold: what was asked for wins, within what the holder promises; a holder
// that promises nothing is one of the Python package.
func TestThreshold(t *testing.T) {
	const s = time.Second
	for _, c := range []struct{ asked, promised, heartbeat, want time.Duration }{
		{0, 30 * s, 10 * s, 30 * s},
		{0, 15 * s, 10 * s, 20 * s},
		{2 * s, 30 * s, s / 2, 2 * s},
		{2 * s, 30 * s, 10 * s, 20 * s},
		{60 * s, 30 * s, 10 * s, 60 * s},
		{0, 0, 0, 30 * s},
		{2 * s, 0, 0, 20 * s},
	} {
		w := watch{alertAfter: c.asked}
		if got := w.threshold(pgmutex.Status{AlertAfter: c.promised, Heartbeat: c.heartbeat}); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}
