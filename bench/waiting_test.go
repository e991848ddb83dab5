//go:build bench

package bench

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/pgmutex/pgmutex/internal/pgtest"
)

func isBusy(err error) bool { return errors.Is(err, errBusy) }

// handOver is from the call of the release here to the grant in a child that
// waits, beside one commit. Those who poll take part in every nth round, as their
// rounds take long.
func (m *match) handOver() {
	all := entered("handover")
	parties, end := m.opened(all)
	defer end()
	children := make([]*child, len(all))
	for i, c := range all {
		children[i] = newChild(m.T, c, m.at, 0)
		defer children[i].end()
		children[i].answer("ready")
	}
	took := make([][]time.Duration, len(all))
	var commits []time.Duration
	pgtest.Exec(m.T, m.conn, `INSERT INTO raw (name) VALUES ('commit')`)
	for round := range m.handovers {
		for i, c := range all {
			if round%everyNth(c.poll) == 0 {
				took[i] = append(took[i], m.pass(c, parties[i], children[i]))
			}
		}
		commits = append(commits, timed(func() {
			pgtest.Exec(m.T, m.conn, `UPDATE raw SET beat = now() WHERE name = 'commit'`)
		}))
	}
	commit := median(commits)
	m.add("handover", "raw UPDATE, one commit", float64(len(commits)), ms(commit), ms(quantile(commits, 0.99)), 1)
	for i, c := range all {
		slices.Sort(took[i])
		p50 := quantile(took[i], 0.5)
		m.add("handover", c.name, float64(len(took[i])), ms(p50), ms(quantile(took[i], 0.99)), ratio(p50, commit))
	}
}

func everyNth(poll time.Duration) int {
	switch {
	case poll == 0:
		return 1
	case poll < 500*time.Millisecond:
		return 5
	}
	return 15
}

// pass hands a lock from this process to the child.
func (m *match) pass(c contestant, p party, to *child) time.Duration {
	m.Helper()
	h, err := p.lock(m.Context(), c.key("baton"))
	m.must(c, err)
	to.ask("waiting", "lock %s", c.key("baton"))
	// No store tells that a foreign client waits. The pause is long enough for one
	// that is woken, and ends anywhere in the interval of one that polls.
	time.Sleep(40*time.Millisecond + rand.N(c.poll+20*time.Millisecond))
	start := time.Now()
	m.must(c, h.unlock(m.Context()))
	took := time.Unix(0, to.answer("granted")[0]).Sub(start)
	to.ask("unlocked", "unlock")
	return took
}

const processes = 10

// waiters is what it costs that many wait for one name, and how fast the lock
// goes round among them.
func (m *match) waiters() {
	for _, c := range entered("waiters") {
		m.queue(c)
	}
}

func (m *match) queue(c contestant) {
	each := m.each
	if c.most > 0 {
		each = min(each, c.most/processes)
	}
	holder, err := c.open(m.Context(), m.at, 0)
	m.must(c, err)
	defer holder.close()
	h, err := holder.lock(m.Context(), c.key("queue"))
	m.must(c, err)
	r, through := newRelay(m.T, m.at, c.store)
	defer r.close()
	var children []*child
	bytes := 0.0
	for range processes {
		child := newChild(m.T, c, through, 0)
		defer child.end()
		children = append(children, child)
	}
	for _, child := range children {
		child.answer("ready")
		bytes -= float64(child.ask("stats", "stats")[0])
	}
	for _, child := range children {
		child.ask("queued", "queue %s %d %d", c.key("queue"), each, m.spread)
	}
	time.Sleep(m.spread)
	m.settled(r, c.poll)
	before := r.requests.Load()
	time.Sleep(m.watch)
	idle := float64(r.requests.Load()-before) / m.watch.Seconds()
	open := float64(r.open.Load()) / processes
	for _, child := range children {
		bytes += float64(child.ask("stats", "stats")[0])
	}

	before = r.requests.Load()
	start := time.Now()
	m.must(c, h.unlock(context.Background()))
	granted, last := int64(0), start.UnixNano()
	for granted < int64(processes*each) && time.Since(start) < m.drain {
		time.Sleep(50 * time.Millisecond)
		granted = 0
		for _, child := range children {
			p := child.ask("progress", "progress")
			granted += p[0]
			last = max(last, p[1])
		}
	}
	requests := float64(r.requests.Load() - before)
	m.add("waiters", c.name, float64(processes*each), open, idle, requests/float64(granted),
		float64(granted)/(time.Unix(0, last).Sub(start)).Seconds(), bytes/float64(processes*each)/1024)
}

// settled waits until all wait: those who poll have had a turn, and the others
// send no more than in the window before.
func (m *match) settled(r *relay, poll time.Duration) {
	if poll > 0 {
		time.Sleep(poll)
		return
	}
	const window = 500 * time.Millisecond
	previous := int64(-1)
	for range 20 {
		before := r.requests.Load()
		time.Sleep(window)
		sent := r.requests.Load() - before
		if sent == 0 || previous >= 0 && sent >= previous-previous/10-5 {
			return
		}
		previous = sent
	}
}
