package memory_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/memory"
)

const stale = 600 * time.Second

// A sink records what an engine tells.
type sink struct {
	mu    sync.Mutex
	lost  []string
	freed []string
}

func (s *sink) Lost(term engine.Term, reason engine.LossReason, by string, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = append(s.lost, fmt.Sprintf("%s %s by %q", term.ID, reason, by))
}

func (s *sink) Freed(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.freed = append(s.freed, name)
}

// take returns and forgets the hints; inside a bubble it first lets everything
// that is due happen.
func (s *sink) take() []string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	freed := s.freed
	s.freed = nil
	return freed
}

func (s *sink) losses() []string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

// A proc is one started process.
type proc struct {
	engine.Engine
	t     testing.TB
	label string
	sink  *sink
	n     int
}

func open(t testing.TB, s *memory.Store, label string) *proc {
	t.Helper()
	p := &proc{Engine: s.Engine(), t: t, label: label, sink: &sink{}}
	if err := p.Start(t.Context(), p.sink); err != nil {
		t.Fatalf("Start: %v", err)
	}
	t.Cleanup(func() {
		if err := p.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return p
}

// request is a one-shot try, which lets the store's clock judge.
func (p *proc) request(name string) engine.Request {
	p.n++
	return engine.Request{
		Term:       engine.Term{Name: name, ID: fmt.Sprintf("%s~%d", p.label, p.n), StaleAfter: stale},
		Heartbeat:  10 * time.Second,
		AlertAfter: 30 * time.Second,
		Judge:      true,
	}
}

func (p *proc) ask(req engine.Request) engine.Answer {
	p.t.Helper()
	answers := p.Acquire(context.Background(), []engine.Request{req})
	if len(answers) != 1 {
		p.t.Fatalf("%d answers to one request", len(answers))
	}
	return answers[0]
}

func (p *proc) try(name string) engine.Answer { return p.ask(p.request(name)) }

func (p *proc) wait(name string) engine.Answer {
	req := p.request(name)
	req.Wait = true
	return p.ask(req)
}

// hold acquires name and fails the test if it cannot.
func (p *proc) hold(name string) engine.Term {
	p.t.Helper()
	req := p.request(name)
	p.granted(p.ask(req))
	return req.Term
}

func (p *proc) granted(a engine.Answer) engine.Answer {
	p.t.Helper()
	if a.Outcome != engine.Granted || a.Token == 0 || a.AcquiredAt.IsZero() || a.Err != nil {
		p.t.Fatalf("%s: not granted: %+v", p.label, a)
	}
	return a
}

func (p *proc) busy(a engine.Answer) engine.Answer {
	p.t.Helper()
	if a.Outcome != engine.Busy || a.Token != 0 || a.Err != nil {
		p.t.Fatalf("%s: not busy: %+v", p.label, a)
	}
	return a
}

func (p *proc) renew(term engine.Term) engine.Standing {
	return p.Renew(context.Background(), []engine.Term{term})[0]
}

func (p *proc) explain(term engine.Term) engine.Standing {
	return p.Explain(context.Background(), []engine.Term{term})[0]
}

func (p *proc) release(term engine.Term) engine.Removal {
	return p.Release(context.Background(), []engine.Term{term})[0]
}

func (p *proc) inspect(name string) engine.Status {
	p.t.Helper()
	status, err := p.Engine.(engine.Inspector).Inspect(context.Background(), name)
	if err != nil {
		p.t.Fatalf("Inspect: %v", err)
	}
	return status
}

func (p *proc) list() []engine.Status {
	p.t.Helper()
	var list []engine.Status
	for status, err := range p.Engine.(engine.Inspector).List(context.Background()) {
		if err != nil {
			p.t.Fatalf("List: %v", err)
		}
		list = append(list, status)
	}
	return list
}

func (p *proc) history(name string) []engine.PastHold {
	p.t.Helper()
	var list []engine.PastHold
	for hold, err := range p.Engine.(engine.Inspector).History(context.Background(), name) {
		if err != nil {
			p.t.Fatalf("History: %v", err)
		}
		list = append(list, hold)
	}
	return list
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func same(t testing.TB, what string, got []string, want ...string) {
	t.Helper()
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}
