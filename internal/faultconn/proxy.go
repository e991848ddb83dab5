package faultconn

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Proxy relays connections to one upstream address. Its methods may be called
// from several goroutines.
type Proxy struct {
	faults   // of every connection, those to come included
	upstream string
	listener net.Listener
	tasks    sync.WaitGroup

	// Below is guarded by state.mu of faults: a fault and a new connection must
	// not miss each other.
	conns   []*Conn // open ones, oldest first
	traps   []*Trap // not yet sprung
	counts  Counts
	refuse  bool
	closing bool
}

// New starts a relay to upstream, a "host:port" or the path of a Unix socket. It
// is closed with the test.
func New(t testing.TB, upstream string) *Proxy {
	t.Helper()
	p, err := Listen(upstream)
	if err != nil {
		t.Fatalf("start the relay: %v", err)
	}
	t.Cleanup(p.Close)
	return p
}

// Listen is New for those without a test; the caller closes the proxy.
func Listen(upstream string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{upstream: upstream, listener: listener}
	p.faults.init(&state{})
	p.tasks.Go(p.accept)
	return p, nil
}

// Addr is the address that clients connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// DSN returns a connection string, URL or key and value, with the proxy in the
// place of the server.
func (p *Proxy) DSN(dsn string) string {
	u, err := url.Parse(dsn)
	if err != nil || u.Scheme == "" {
		addr := p.listener.Addr().(*net.TCPAddr)
		return fmt.Sprintf("%s host=%s port=%d", dsn, addr.IP, addr.Port) // the last one counts
	}
	u.Host = p.Addr()
	q := u.Query()
	q.Del("host") // a socket directory
	q.Del("port")
	u.RawQuery = q.Encode()
	return u.String()
}

// Close ends every connection and returns when nothing of the proxy runs any
// more. A second call does nothing.
func (p *Proxy) Close() {
	p.state.mu.Lock()
	p.closing = true
	p.state.mu.Unlock()
	p.listener.Close()
	p.Cut()
	done := make(chan struct{})
	go func() { // ends before Close does
		defer close(done)
		p.tasks.Wait()
	}()
	timer := time.NewTimer(2 * time.Second)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		for _, c := range p.Conns() {
			c.Cut()
		}
		<-done
	}
}

// Conns returns the open connections, oldest first.
func (p *Proxy) Conns() []*Conn {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	return slices.Clone(p.conns)
}

// Cut closes every open connection towards both sides. New ones are welcome. Those
// that ask the server to cancel a statement are left to end by themselves, as they
// do at once: PgBouncer 1.18 dies when such a client leaves before it was served.
func (p *Proxy) Cut() {
	for _, c := range p.Conns() {
		if !c.errand.Load() {
			c.Cut()
		}
	}
}

// Reset ends every open connection with a TCP reset towards both sides.
func (p *Proxy) Reset() {
	for _, c := range p.Conns() {
		c.Reset()
	}
}

// Refuse makes the proxy reset new connections at once, or accept them again.
// Refuse(true) and then Cut leave no connection behind.
func (p *Proxy) Refuse(refuse bool) {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	p.refuse = refuse
}

// accept runs until the listener is closed.
func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.state.mu.Lock()
		refuse := p.refuse || p.closing
		if refuse {
			p.counts.Refused++
		}
		p.state.mu.Unlock()
		if refuse {
			reset(client)
			continue
		}
		p.tasks.Go(func() { p.serve(client) })
	}
}

// serve relays one connection until both directions have ended.
func (p *Proxy) serve(client net.Conn) {
	network := "tcp"
	if strings.HasPrefix(p.upstream, "/") {
		network = "unix"
	}
	server, err := net.Dial(network, p.upstream)
	if err != nil {
		reset(client) // as a server that is down would
		return
	}
	c := newConn(p, client, server)
	p.state.mu.Lock()
	// Refusing may have begun since the connection was accepted: then a Cut that
	// followed has not seen this one, and it must not live on behind its back.
	welcome := !p.closing && !p.refuse
	if !welcome {
		p.counts.Refused++
	} else {
		p.conns = append(p.conns, c)
		p.counts.Connections++
	}
	p.state.mu.Unlock()
	if welcome {
		c.relay()
	}
	c.Cut()
	p.state.mu.Lock()
	p.conns = slices.DeleteFunc(p.conns, func(other *Conn) bool { return other == c })
	p.state.mu.Unlock()
}
