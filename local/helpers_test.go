package local

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pgmutex/pgmutex/engine"
)

// host is a machine whose clocks and boot are set by hand.
type host struct {
	mu     sync.Mutex
	id     string
	at     time.Duration
	day    time.Time
	refuse error
}

func newHost() *host {
	return &host{id: "boot-1", at: time.Hour, day: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}
}

func (h *host) machine() machine {
	return machine{
		boot:  func() string { h.mu.Lock(); defer h.mu.Unlock(); return h.id },
		clock: func() time.Duration { h.mu.Lock(); defer h.mu.Unlock(); return h.at },
		wall:  func() time.Time { h.mu.Lock(); defer h.mu.Unlock(); return h.day },
		check: func(string) error { h.mu.Lock(); defer h.mu.Unlock(); return h.refuse },
	}
}

func (h *host) pass(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at += d
	h.day = h.day.Add(d)
}

// reboot starts the machine again, under a boot of that name.
func (h *host) reboot(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.id, h.at = id, time.Minute
	h.day = h.day.Add(time.Minute)
}

// store returns a path for a new store.
func store(t testing.TB) string { return filepath.Join(t.TempDir(), "locks.db") }

// start returns an engine on the path, as another process on that host.
func start(t testing.TB, h *host, path string) *process {
	t.Helper()
	p := newProcess(path, Options{}, h.machine())
	if err := p.Start(context.Background(), nil); err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	return p
}

var nonces sync.Map

// request returns one for name by a holder of that label.
func request(name, label string) engine.Request {
	n, _ := nonces.LoadOrStore(label, new(int))
	count := n.(*int)
	*count++
	return engine.Request{
		Term:       engine.Term{Name: name, ID: fmt.Sprintf("%s~%016d", label, *count), StaleAfter: time.Minute},
		Heartbeat:  5 * time.Second,
		AlertAfter: 20 * time.Second,
		Judge:      true,
	}
}

func ask(p *process, req engine.Request) engine.Answer {
	return p.Acquire(context.Background(), []engine.Request{req})[0]
}

// grant acquires for the request and fails the test unless that is granted.
func grant(t testing.TB, p *process, req engine.Request) engine.Term {
	t.Helper()
	a := ask(p, req)
	if a.Outcome != engine.Granted {
		t.Fatalf("acquire %q for %s: outcome %d (%v), want granted", req.Term.Name, req.Term.ID, a.Outcome, a.Err)
	}
	if a.Token == 0 {
		t.Fatalf("acquire %q: no token", req.Term.Name)
	}
	term := req.Term
	term.Token = a.Token
	return term
}

// wantBusy fails the test unless the request is answered with Busy.
func wantBusy(t testing.TB, p *process, req engine.Request) engine.Answer {
	t.Helper()
	a := ask(p, req)
	if a.Outcome != engine.Busy {
		t.Fatalf("acquire %q for %s: outcome %d (%v), want busy", req.Term.Name, req.Term.ID, a.Outcome, a.Err)
	}
	return a
}

func renew(p *process, term engine.Term) engine.Standing {
	return p.Renew(context.Background(), []engine.Term{term})[0]
}

func release(p *process, term engine.Term) engine.Removal {
	return p.Release(context.Background(), []engine.Term{term})[0]
}

func waiting(req engine.Request) engine.Request { req.Wait = true; return req }

func mention(t testing.TB, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one about %q", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not mention %q", err, w)
		}
	}
}
