package model

import "strings"

// setup is what one search explores.
type setup struct {
	name  string
	stale [clients]int8 // StaleAfter of a and b, in ticks
	trust [clients]int8
	alike bool // a and b may change places

	python   int8 // b is a process of the Python package with this threshold, unless 0
	strays   bool // requests may be under way that nobody waits for
	removals bool // which may be removals, too
	patient  bool // an attempt is waited for when its trust is over; else it is given up then
	slow     bool // the answer that the lock is held may take its time; else it comes at once, and a takeover is not later for it
	split    bool // an acquisition reads the row first and writes later
	crashes  bool
	guards   bool
	forgets  bool   // the database may lose the committed row
	slips    bool   // a client's clock may miss a tick
	leaps    bool   // or be ahead by one more
	steps    []int8 // of the server's clock
	calm     int8   // ticks from one disturbance of a clock to the next
	unlooked bool   // the steps are of any size, but no first look sees a row from before one

	bug   bug
	check property
}

// property is one of the promises, or what they rest on; promises says which.
type property uint16

const (
	belief property = 1 << iota
	standing
	final
	own
	clean
	effect
	order
	live
)

var promises = [...]struct {
	property
	text string
}{
	{belief, "two never both believe that they hold the lock"},
	{standing, "whoever believes has the row"},
	{final, "what has ended is never held again"},
	{own, "a statement changes the row of its own term or the one it judged"},
	{clean, "what was settled by an answer is not in the store, and never comes"},
	{effect, "guarded transactions of two terms are never open at once"},
	{order, "tokens rise in the order of the grants"},
	{live, "who watched one heartbeat for its holder's whole promise may take over"},
}

const everything = belief | standing | final | own | clean | effect | order | live

func (p property) String() string {
	var texts []string
	for _, known := range promises {
		if p&known.property != 0 {
			texts = append(texts, known.text)
		}
	}
	return strings.Join(texts, "; ")
}

// isPython tells whether a client knows neither fences nor promises.
func (m *setup) isPython(c int) bool { return m.python > 0 && c == 1 }

// promise is what others are to wait for, for the row of a client.
func (m *setup) promise(c int) int8 {
	if m.isPython(c) {
		return m.python
	}
	return m.stale[c]
}

// longest is the age from which on all rows are alike.
func (m *setup) longest() int8 {
	n := m.longestPromise()
	for _, k := range m.steps {
		n = max(n, m.longestPromise()-k)
	}
	return n
}

func (m *setup) longestPromise() int8 { return max(m.promise(0), m.promise(1)) }

// longestLook is the time since the latest look that matters: it serves to tell
// that the server's clock has made a step.
func (m *setup) longestLook() int8 {
	if len(m.steps) == 0 {
		return 0
	}
	return m.longestPromise()
}

// longestSince is the time since a request that matters.
func (m *setup) longestSince(c int) int8 {
	n := max(m.trust[c], m.longestLook())
	if m.bug == watchFromRequest {
		n = max(n, m.longestPromise())
	}
	return n
}
