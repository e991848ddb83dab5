//go:build bench

package bench

import (
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// A relay stands before a server and counts: connections, and requests, which
// are the pieces in which clients send. A client that waits for each reply sends
// one piece for each request, whatever the protocol; what follows a long piece is
// the rest of the same request.
type relay struct {
	listener net.Listener
	upstream string
	requests atomic.Int64
	open     atomic.Int64
	mu       sync.Mutex
	conns    []net.Conn
	running  sync.WaitGroup
}

// newRelay returns stores in which one server is reached through the relay.
func newRelay(t *testing.T, s stores, at store) (*relay, stores) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	pgtest.Must(t, err)
	r := &relay{listener: l, upstream: s[at]}
	through := stores{}
	for name, addr := range s {
		through[name] = addr
	}
	through[at] = l.Addr().String()
	if at == postgres {
		u, err := url.Parse(s[at])
		pgtest.Must(t, err)
		r.upstream, u.Host = u.Host, l.Addr().String()
		through[at] = u.String()
	}
	r.running.Go(r.accept)
	return r, through
}

func (r *relay) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", r.upstream)
		if err != nil {
			client.Close()
			continue
		}
		r.mu.Lock()
		r.conns = append(r.conns, client, server)
		r.mu.Unlock()
		r.open.Add(1)
		r.running.Go(func() {
			defer r.open.Add(-1)
			pipe(server, client, &r.requests)
		})
		r.running.Go(func() { pipe(client, server, nil) })
	}
}

func pipe(to, from net.Conn, count *atomic.Int64) {
	defer to.Close()
	buffer := make([]byte, 64<<10)
	const long = 16 << 10
	last := 0
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if count != nil && last < long {
				count.Add(1)
			}
			last = n
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (r *relay) close() {
	r.listener.Close()
	r.mu.Lock()
	for _, c := range r.conns {
		c.Close()
	}
	r.mu.Unlock()
	r.running.Wait()
}
