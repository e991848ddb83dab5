// Package contract is what the contract tests of engines that talk to a server
// have in common.
package contract

import (
	"net/url"
	"sync"
	"testing"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/enginetest"
	"github.com/pgmutex/pgmutex/internal/faultconn"
)

// Relays stand before the clients of one harness, one before each, and can be
// made to fail. The zero value has none.
type Relays struct {
	mu sync.Mutex
	of map[*pgmutex.Client]*faultconn.Proxy
}

// Open opens a client on the engine that build makes for the connection string
// of a relay to dsn, which is a URL.
func (r *Relays) Open(t testing.TB, dsn string, o *pgmutex.Options, build func(dsn string) (engine.Engine, error)) (*pgmutex.Client, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return nil, err
	}
	p := faultconn.New(t, u.Host)
	eng, err := build(p.DSN(dsn))
	if err != nil {
		return nil, err
	}
	c, err := pgmutex.New(t.Context(), eng, o)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[*pgmutex.Client]*faultconn.Proxy{}
	}
	r.of[c] = p
	return c, err
}

func (r *Relays) before(c *pgmutex.Client) *faultconn.Proxy {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.of[c]
}

// Faulter breaks the connections of clients that Open has opened.
func (r *Relays) Faulter() enginetest.Faulter {
	return enginetest.Faulter{
		Kill: func(_ testing.TB, c *pgmutex.Client) {
			r.before(c).Refuse(true)
			r.before(c).Cut()
		},
		Cut: func(_ testing.TB, c *pgmutex.Client) { r.before(c).Cut() },
		HoldReplies: func(_ testing.TB, c *pgmutex.Client) func() {
			r.before(c).HoldReplies()
			return r.before(c).ReleaseReplies
		},
	}
}
