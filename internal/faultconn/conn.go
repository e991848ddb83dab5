package faultconn

import (
	"bufio"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// queueLength is how many messages a direction takes in while it is frozen. The
// sender is stopped by its own kernel's buffer after that.
const queueLength = 1024

// Conn is one relayed connection.
type Conn struct {
	faults
	proxy          *Proxy
	client, server net.Conn
	over           chan struct{} // closed by the cut
	once           sync.Once

	started    atomic.Bool // the client's startup message has passed
	wantAnswer atomic.Bool // the server's next byte answers a TLSRequest
	opaque     atomic.Bool // encrypted from here on
	errand     atomic.Bool // carries a request to cancel, and nothing else
}

func newConn(p *Proxy, client, server net.Conn) *Conn {
	c := &Conn{proxy: p, client: client, server: server, over: make(chan struct{})}
	c.faults.init(p.state)
	return c
}

// Cut closes the connection towards both sides; what is on its way is lost.
func (c *Conn) Cut() {
	c.once.Do(func() {
		close(c.over)
		c.client.Close()
		c.server.Close()
	})
}

// Reset ends the connection with a TCP reset towards both sides.
func (c *Conn) Reset() {
	c.once.Do(func() {
		close(c.over)
		reset(c.client)
		reset(c.server)
	})
}

// HalfClose tells the receiver of a direction that nothing more will come, as if
// the sender had closed its half. What comes anyway is lost.
func (c *Conn) HalfClose(d Direction) {
	if d&Requests != 0 {
		closeWrite(c.server)
	}
	if d&Replies != 0 {
		closeWrite(c.client)
	}
}

// Client is the address of the client's end.
func (c *Conn) Client() string { return c.client.RemoteAddr().String() }

// reset closes a connection so that the peer gets a reset instead of an end.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // fails on a closed connection only
	}
	conn.Close()
}

func closeWrite(conn net.Conn) {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // fails on a closed connection only
	}
}

// item is a place in a direction's queue: a message, a trap's action, or both
// empty for the end of the stream.
type item struct {
	message
	at   time.Time
	trap *Trap
}

// relay runs both directions to their ends.
func (c *Conn) relay() {
	var tasks sync.WaitGroup
	for _, d := range []Direction{Requests, Replies} {
		queue := make(chan item, queueLength)
		tasks.Go(func() {
			c.read(d, queue)
			close(queue)
		})
		tasks.Go(func() { c.write(d, queue) })
	}
	tasks.Wait()
}

// read takes in one direction until its source ends.
func (c *Conn) read(d Direction, queue chan<- item) {
	source := c.client
	if d == Replies {
		source = c.server
	}
	r := bufio.NewReaderSize(source, 64<<10)
	put := func(it item) bool {
		it.at = time.Now()
		select {
		case queue <- it:
			return true
		case <-c.over:
			return false
		}
	}
	for {
		m, err := c.next(d, r)
		if err != nil {
			return
		}
		if m.typ == CancelRequest {
			c.errand.Store(true)
		}
		trap := c.note(d, m)
		if trap == nil {
			if !put(item{message: m}) {
				return
			}
			continue
		}
		if trap.action == Hold {
			if !put(item{trap: trap}) || !put(item{message: m}) {
				return
			}
			continue
		}
		// From here on the direction is dead. The writer acts after what came
		// before the message.
		if d == Replies {
			c.untilReady(r, m)
		}
		put(item{trap: trap})
		_, _ = io.Copy(io.Discard, r) // ends with the cut, which comes
		return
	}
}

// untilReady reads replies up to the server's ReadyForQuery or its end.
func (c *Conn) untilReady(r *bufio.Reader, m message) {
	for m.typ != 'Z' {
		var err error
		if m, err = readTyped(r); err != nil {
			return
		}
		c.note(Replies, m)
	}
}

// next reads one message of a direction.
func (c *Conn) next(d Direction, r *bufio.Reader) (message, error) {
	// A reader that waits here for its first byte sees the switches below as they
	// are when it comes: the other side speaks only after it was spoken to.
	first, err := r.Peek(1)
	if err != nil {
		return message{}, err
	}
	switch {
	case c.opaque.Load():
		return readOpaque(r)
	case d == Replies && c.wantAnswer.Swap(false):
		if first[0] != 'N' && first[0] != 'E' {
			c.opaque.Store(true)
		}
		if first[0] == 'E' { // an ErrorResponse of a server that knows no TLS
			return readTyped(r)
		}
		b, err := r.ReadByte()
		return message{typ: TLSRequest, bytes: []byte{b}}, err
	case d == Requests && !c.started.Load():
		if first[0] != 0 { // TLS without asking
			c.opaque.Store(true)
			return readOpaque(r)
		}
		m, err := readStartup(r)
		switch m.typ {
		case TLSRequest:
			c.wantAnswer.Store(true)
		case Startup:
			c.started.Store(true)
		}
		return m, err
	}
	return readTyped(r)
}

// note counts a message and says which trap it springs.
func (c *Conn) note(d Direction, m message) *Trap {
	if m.typ == 0 {
		return nil
	}
	p := c.proxy
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	p.counts.seen[d.index()][m.typ]++
	return p.spring(d, m)
}

// write forwards one direction until its queue ends.
func (c *Conn) write(d Direction, queue <-chan item) {
	destination := c.server
	if d == Replies {
		destination = c.client
	}
	broken := false
	for it := range queue {
		chunk, ok := c.due(d, it.at)
		if !ok {
			continue // cut: empty the queue
		}
		switch {
		case it.trap != nil:
			c.act(d, it.trap)
		case !broken:
			broken = !send(destination, it.bytes, chunk)
			// A destination that is gone takes no more, but the other direction
			// still has its say: a frozen request outlives its client.
		}
	}
	if _, ok := c.due(d, time.Now()); ok {
		closeWrite(destination)
	}
}

// send reports whether all bytes were accepted.
func send(to net.Conn, bytes []byte, chunk int) bool {
	if chunk <= 0 {
		chunk = len(bytes)
	}
	for piece := range slices.Chunk(bytes, chunk) {
		if _, err := to.Write(piece); err != nil {
			return false
		}
	}
	return true
}

// due waits until something that came at a time may be forwarded, and returns
// the length of the writes; false when the connection was cut.
func (c *Conn) due(d Direction, at time.Time) (chunk int, ok bool) {
	i := d.index()
	for {
		c.state.mu.Lock()
		frozen := c.frozen[i] || c.proxy.frozen[i]
		wait := time.Until(at.Add(c.delay[i] + c.proxy.delay[i]))
		if chunk = c.chunk[i]; chunk == 0 {
			chunk = c.proxy.chunk[i]
		}
		changed := c.state.changed
		c.state.mu.Unlock()

		select {
		case <-c.over:
			return 0, false
		default:
		}
		if !frozen && wait <= 0 {
			return chunk, true
		}
		var timer <-chan time.Time
		if !frozen {
			timer = time.After(wait)
		}
		select {
		case <-changed:
		case <-timer:
		case <-c.over:
			return 0, false
		}
	}
}

// act does what a trap is for, and says that it is done.
func (c *Conn) act(d Direction, trap *Trap) {
	switch trap.action {
	case Cut:
		c.Cut()
	case Reset:
		c.Reset()
	case Hold:
		c.Freeze(d)
	}
	trap.conn = c
	close(trap.sprung)
}
