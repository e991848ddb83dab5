package lease

import "sync"

// taken are the names that somebody held when this client looked last, itself
// included: to be asked about by the statement that says who. A name too many costs
// a few microseconds, one too few a second round trip.
type taken struct {
	mu    sync.Mutex
	names map[string]struct{}
}

// manyTaken bounds the memory.
const manyTaken = 10_000

func (t *taken) has(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.names[name]
	return ok
}

func (t *taken) add(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.names == nil || len(t.names) >= manyTaken {
		t.names = map[string]struct{}{}
	}
	t.names[name] = struct{}{}
}

func (t *taken) remove(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.names, name)
}
