package keeper

import (
	"context"
	"sync"
	"time"
)

// A limit hands out contexts that end after a while, one for all calls of a moment. A
// timer for each call would cost more than it looks: the runtime wakes another
// thread whenever a timer is set that is due before all others, which is a good part
// of what a short call costs the client.
type limit struct {
	parent context.Context

	mu  sync.Mutex
	all map[time.Duration]shared // by how long they last
}

// shared is a context and the time until which it is handed out.
type shared struct {
	ctx   context.Context
	until time.Time
}

// manyLimits bounds the memory. Most clients have one or two.
const manyLimits = 64

// within returns a context that ends after d, or up to a sixteenth of d earlier.
func (l *limit) within(d time.Duration) context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	s, ok := l.all[d]
	if !ok || !now.Before(s.until) {
		if l.all == nil || !ok && len(l.all) >= manyLimits {
			l.all = map[time.Duration]shared{}
		}
		ctx, cancel := context.WithTimeout(l.parent, d)
		context.AfterFunc(ctx, cancel)
		s = shared{ctx, now.Add(d / 16)}
		l.all[d] = s
	}
	return s.ctx
}
