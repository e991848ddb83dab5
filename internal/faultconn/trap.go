package faultconn

import "slices"

// An Action is what a trap does to the connection that sprang it.
type Action int

const (
	// Cut closes the connection towards both sides.
	Cut Action = iota
	// Reset ends it with a TCP reset towards both sides.
	Reset
	// Hold freezes the direction, the matched message first in line, until
	// [Conn.Thaw] of that direction on the trap's [Trap.Conn].
	Hold
)

// Trap waits for a message.
type Trap struct {
	match  Match
	action Action
	sprung chan struct{}
	conn   *Conn
}

// CutAfter is Trap(m, Cut): the server has executed the command, and the client
// never hears of it.
func (p *Proxy) CutAfter(m Match) *Trap { return p.Trap(m, Cut) }

// Trap sets a trap for the first message on any connection that matches m. What
// came before the message in its direction is forwarded, the message is not.
//
// For a reply, Cut and Reset wait until the server is ready for the next query:
// PostgreSQL reports a command complete before it commits in the extended
// protocol, and only readiness proves the commit. So after Sprung a statement
// outside a transaction block has been committed. A request is kept from the
// server altogether.
func (p *Proxy) Trap(m Match, do Action) *Trap {
	trap := &Trap{match: m, action: do, sprung: make(chan struct{})}
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	p.traps = append(p.traps, trap)
	return trap
}

// Remove takes away a trap that has not been sprung. It reports whether it was
// still there.
func (p *Proxy) Remove(trap *Trap) bool {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	before := len(p.traps)
	p.traps = slices.DeleteFunc(p.traps, func(t *Trap) bool { return t == trap })
	return len(p.traps) < before
}

// Sprung is closed when the trap's action has been done.
func (t *Trap) Sprung() <-chan struct{} { return t.sprung }

// Conn is the connection that sprang the trap. It waits for that.
func (t *Trap) Conn() *Conn {
	<-t.sprung
	return t.conn
}

// spring looks for a trap that m triggers, and takes it away. The caller holds
// the lock.
func (p *Proxy) spring(from Direction, m message) *Trap {
	for i, trap := range p.traps {
		if !trap.match.matches(from, m) {
			continue
		}
		if trap.match.Skip > 0 {
			trap.match.Skip--
			continue
		}
		p.traps = slices.Delete(p.traps, i, i+1)
		return trap
	}
	return nil
}
