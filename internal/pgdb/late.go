package pgdb

import (
	"context"
	"time"
)

// A latecomer is a connection of the lane Keep whose answer the caller no longer
// waits for. A link that has become slow is not a dead one: its connection is worth
// more than a new one, which takes several round trips. So the answer is read on,
// beside the attempt to connect that the next caller begins; the lane goes on with
// the first of the two.
//
// The server is not asked to cancel: a renewal waits for nothing but a row lock, and
// not long for that.
type latecomer struct {
	c     *ownConn
	stop  context.CancelFunc
	done  chan struct{} // closed when the answer is there, or nobody waits any more
	sound bool          // set then: the connection can be used again
	at    time.Time
}

// late leaves an answer to a goroutine. The caller has the turn, and the lane no
// connection afterwards.
func (r *Running) late() {
	l := r.l
	l.dismiss() // there is one at a time: this answer will come sooner than the last one
	ctx, stop := context.WithTimeout(context.Background(), openLimit)
	d := &latecomer{c: r.c, stop: stop, done: make(chan struct{})}
	l.delayed, l.c = d, nil
	// The lane is ours still, so Close is waiting for it and not for this yet.
	l.db.work.Go(func() {
		defer close(d.done)
		defer stop()
		if r.Wait(ctx) && r.err != nil {
			_ = r.c.failed(ctx, r.st.Name, r.err)
		}
		d.at, d.sound = time.Now(), r.done && r.c.usable()
		if !d.sound {
			sever(r.c.pg.PgConn())
		}
	})
}

// regain takes the connection back if the answer has come and there is no other.
func (l *lane) regain() {
	d := l.delayed
	if d == nil {
		return
	}
	select {
	case <-d.done:
	default:
		return
	}
	switch {
	case !d.sound || l.c != nil:
		l.dismiss()
	default:
		l.delayed = nil
		l.c, l.used = d.c, d.at
		if l.opening != nil {
			l.opening.stop()
		}
	}
}

// dismiss closes the latecomer, if there is one.
func (l *lane) dismiss() {
	d := l.delayed
	if d == nil {
		return
	}
	l.delayed = nil
	d.stop()
	<-d.done
	sever(d.c.pg.PgConn())
}
