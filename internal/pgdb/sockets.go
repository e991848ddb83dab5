package pgdb

import (
	"context"
	"net"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"
)

// sockets knows every network connection of a DB, so that Close can end all of
// them, those included that the driver works on in the background: after an
// interrupted statement it dials once more to ask the server to cancel, and
// gives that up only after a quarter of a minute.
type sockets struct {
	mu   sync.Mutex
	open map[*socket]struct{}
	dead bool
}

func newSockets() *sockets { return &sockets{open: map[*socket]struct{}{}} }

// dialer wraps dial: what it makes is known to s, and a dial ends with life too.
func (s *sockets) dialer(life context.Context, dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(life, cancel)()
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return s.add(c)
	}
}

func (s *sockets) add(c net.Conn) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		_ = c.Close()
		return nil, ErrClosed
	}
	k := &socket{Conn: c, owner: s}
	s.open[k] = struct{}{}
	return k, nil
}

// kill closes all sockets, and those that are dialled from now on.
func (s *sockets) kill() {
	s.mu.Lock()
	s.dead = true
	all := make([]*socket, 0, len(s.open))
	for k := range s.open {
		all = append(all, k)
	}
	s.mu.Unlock()
	for _, k := range all {
		_ = k.Close()
	}
}

// socket is a network connection that takes itself off the list when closed.
type socket struct {
	net.Conn
	owner *sockets
}

func (k *socket) Close() error {
	k.owner.mu.Lock()
	delete(k.owner.open, k)
	k.owner.mu.Unlock()
	return k.Conn.Close()
}

// unread reports whether c has input that nobody has read yet, or was closed by
// the other side, as far as that can be told without waiting: the farewell of a
// server that has ended the session.
func unread(c net.Conn) bool {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok { // *tls.Conn
		c = t.NetConn()
	}
	if k, ok := c.(*socket); ok {
		c = k.Conn
	}
	return peek(c)
}
