package advisory

import (
	"sync"
	"time"

	"github.com/pgmutex/pgmutex/engine"
)

// A holding is one lock that is held on the session.
type holding struct {
	term    engine.Term
	id      int64
	at      time.Time // by the server's clock
	request engine.Request

	// Whether its holder is asked to stop, and by whom; guarded like the table.
	// Shown is used like the session's marks.
	stop   bool
	stopBy string
	shown  bool
}

// table is what is held, by id: the server would grant a lock to the same session
// a second time, whoever asks, and in both modes at once. So this decides between
// the goroutines of a client, and the server between clients. Shared holds of one
// id are as many in the table as on the server, which counts them.
type table struct {
	terms map[string]*holding
	ids   map[int64][]*holding // more than one only if all are shared
}

func newTable() table {
	return table{terms: map[string]*holding{}, ids: map[int64][]*holding{}}
}

func (t *table) len() int { return len(t.terms) }

func (t *table) add(h *holding) {
	t.terms[h.term.ID] = h
	t.ids[h.id] = append(t.ids[h.id], h)
}

func (t *table) remove(h *holding) {
	if t.terms[h.term.ID] != h {
		return
	}
	delete(t.terms, h.term.ID)
	same := t.ids[h.id]
	if len(same) == 1 {
		delete(t.ids, h.id)
		return
	}
	left := make([]*holding, 0, len(same)-1)
	for _, other := range same {
		if other != h {
			left = append(left, other)
		}
	}
	t.ids[h.id] = left
}

func (t *table) term(termID string) *holding { return t.terms[termID] }

// holder returns one who holds the id; all others have the same mode.
func (t *table) holder(id int64) *holding {
	if same := t.ids[id]; len(same) > 0 {
		return same[0]
	}
	return nil
}

func (t *table) all() []*holding {
	var all []*holding
	for _, h := range t.terms {
		all = append(all, h)
	}
	return all
}

func (t *table) clear() []*holding {
	all := t.all()
	*t = newTable()
	return all
}

// memory keeps what is worth knowing for a while, and forgets the oldest.
type memory[K comparable, V any] struct {
	mu    sync.Mutex
	limit int
	known map[K]V
	order []K
}

func newMemory[K comparable, V any](limit int) *memory[K, V] {
	return &memory[K, V]{limit: limit, known: map[K]V{}}
}

func (m *memory[K, V]) put(key K, value V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.known[key]; !ok {
		m.order = append(m.order, key)
		if len(m.order) > m.limit {
			delete(m.known, m.order[0])
			m.order = m.order[1:]
		}
	}
	m.known[key] = value
}

func (m *memory[K, V]) get(key K) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.known[key]
	return v, ok
}
