package faultconn

// Counts are the messages that clients sent through a proxy, and its
// connections.
type Counts struct {
	Connections int // relayed, closed ones included
	Refused     int

	Startups, Cancels          int
	Query                      int // simple protocol
	Parse, Bind, Execute, Sync int // extended protocol
	Describe, Close, Flush     int
	Terminate                  int

	seen [2][256]int
}

// RoundTrips is how often clients asked and had to wait: every Query, Sync and
// Flush.
func (c Counts) RoundTrips() int { return c.Query + c.Sync + c.Flush }

// Seen is the number of messages of a type in one direction, by the protocol's
// type byte or one of the pseudo types.
func (c Counts) Seen(d Direction, typ byte) int { return c.seen[d.index()][typ] }

// Since is what came after an earlier look.
func (c Counts) Since(earlier Counts) Counts {
	diff := Counts{Connections: c.Connections - earlier.Connections, Refused: c.Refused - earlier.Refused}
	for d := range c.seen {
		for typ := range c.seen[d] {
			diff.seen[d][typ] = c.seen[d][typ] - earlier.seen[d][typ]
		}
	}
	return diff.named()
}

// named fills the fields from the table.
func (c Counts) named() Counts {
	sent := &c.seen[Requests.index()]
	c.Startups, c.Cancels = sent[Startup], sent[CancelRequest]
	c.Query = sent['Q']
	c.Parse, c.Bind, c.Execute, c.Sync = sent['P'], sent['B'], sent['E'], sent['S']
	c.Describe, c.Close, c.Flush = sent['D'], sent['C'], sent['H']
	c.Terminate = sent['X']
	return c
}

// Counts is what the proxy has seen so far.
func (p *Proxy) Counts() Counts {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	return p.counts.named()
}
