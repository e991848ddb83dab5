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

	mu    sync.Mutex
	ctx   context.Context
	after time.Duration // how long ctx lasts
	until time.Time     // and how long it is handed out
}

// within returns a context that ends after d, or up to a sixteenth of d earlier.
func (l *limit) within(d time.Duration) context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.ctx == nil || l.after != d || !now.Before(l.until) {
		ctx, cancel := context.WithTimeout(l.parent, d)
		context.AfterFunc(ctx, cancel)
		l.ctx, l.after, l.until = ctx, d, now.Add(d/16)
	}
	return l.ctx
}
