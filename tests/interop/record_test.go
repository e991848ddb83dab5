//go:build interop

package interop

import (
	"sync"
	"testing"
	"time"
)

// A record is what hooks of one side have been told.
type record struct {
	t    testing.TB
	name string

	mu     sync.Mutex
	events []event
	news   chan struct{} // closed and replaced at each event
}

type event struct{ what, with string }

func newRecord(t testing.TB, name string) *record {
	return &record{t: t, name: name, news: make(chan struct{})}
}

func (r *record) add(what, with string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, event{what, with})
	close(r.news)
	r.news = make(chan struct{})
}

// count returns how often something was told.
func (r *record) count(what string) int { return len(r.told(what)) }

// told returns what came with each.
func (r *record) told(what string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	with := []string{}
	for _, e := range r.events {
		if e.what == what {
			with = append(with, e.with)
		}
	}
	return with
}

// await returns when something has been told more than n times.
func (r *record) await(what string, n int) {
	r.t.Helper()
	timer := time.NewTimer(bound)
	defer timer.Stop()
	for {
		r.mu.Lock()
		news := r.news
		r.mu.Unlock()
		if r.count(what) > n {
			return
		}
		select {
		case <-news:
		case <-timer.C:
			r.t.Fatalf("%s was not told %q", r.name, what)
		}
	}
}
