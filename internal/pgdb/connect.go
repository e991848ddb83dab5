package pgdb

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// An attempt to connect whose first caller has left ends when it is this old:
	// what a server has not done by then it is not going to do.
	openLimit = 30 * time.Second

	// A host that has not even accepted a connection for this long is asked anew
	// when the next caller comes: the pauses between the packets that ask it grow,
	// and while they last nobody sees that the network is back.
	deafAfter = 5 * time.Second
)

var (
	errUnfinished = errors.New("the attempt to connect came to no end") // a hook ended its goroutine
	errStopped    = errors.New("the attempt to connect is given up")
)

// An opening is an attempt to connect. It does not end with the caller that it
// was begun for: over a slow link a connection takes several round trips, and
// callers with less time than that, one after the other, would never get one. It
// belongs to the lane, one at a time, and serves whoever has the turn when it is
// over.
type opening struct {
	began time.Time
	soon  time.Time   // when that caller gives up; zero where it has no deadline
	limit *time.Timer // stops it; nil as long as nobody has left. Whoever has the turn owns it

	dialing atomic.Int64          // the age at which a host was asked that has not accepted yet, 0: none
	failed  atomic.Pointer[error] // why no host was usable, of a round that is over

	mu      sync.Mutex
	cancel  context.CancelFunc
	socket  net.Conn // the last one
	stopped bool
	over    bool

	done chan struct{} // closed when it is over; what follows is set then
	c    conn
	err  error
	cut  bool // it was stopped before it could fail by itself
	at   time.Time
}

// connect makes sure of a connection where there is none. The error says why
// there is none; it is never that of an attempt that ended before the call.
func (l *lane) connect(ctx context.Context) error {
	if lender, ok := l.db.back.(*lent); ok {
		// The application would miss a connection that was borrowed for nobody.
		c, err := lender.connect(ctx, l.db)
		if err == nil {
			l.put(c, time.Now())
		}
		return err
	}
	w := l.db.back.(*owned)
	for {
		if l.opening == nil {
			l.open(ctx, w)
		}
		o := l.opening
		if o.deaf() {
			o.stop()
		}
		var answered chan struct{}
		if l.delayed != nil {
			answered = l.delayed.done
		}
		select {
		case <-o.done:
		case <-answered:
			if l.regain(); l.c != nil {
				return nil
			}
			continue
		case <-ctx.Done():
			o.leave()
			return w.late(ctx, o)
		}
		l.collect()
		switch {
		case l.c != nil:
			return nil
		case !o.cut || l.db.life.Err() != nil:
			return o.err
		}
		// It had its limit from others: this caller is worth one of its own.
	}
}

// open begins an attempt. The caller has the turn, which Close has not passed
// yet: the counter is not at zero for good.
func (l *lane) open(ctx context.Context, w *owned) {
	o := &opening{began: time.Now(), done: make(chan struct{}), err: notSent("", errUnfinished)}
	o.soon, _ = ctx.Deadline()
	ctx, o.cancel = context.WithCancel(context.WithoutCancel(ctx))
	l.opening = o
	habit := l.habit
	l.db.work.Go(func() {
		defer close(o.done)
		defer o.cancel()
		c, err := w.build(ctx, l.db, nil, o)
		if err == nil && c.mode == pgx.QueryExecModeCacheStatement && habit.Name != "" {
			// Most likely the next one, and the caller may have no time for it. Whether
			// it can be prepared is its own affair.
			if _ = c.prepare(ctx, habit.text(c.known.Settings)); !c.usable() {
				c.close()
				c, err = nil, notSent("", errStopped)
			}
		}
		o.at = time.Now()
		switch cut := o.end(); {
		case err != nil:
			o.err, o.cut = err, cut
		case cut:
			c.close()
			o.cut = true
		default:
			o.c, o.err = c, nil
		}
	})
}

// stop ends the attempt at once: without its socket the driver neither waits for
// the server's farewell nor asks it to cancel what it was about to answer.
func (o *opening) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over {
		return // what it has made is not ours to end
	}
	o.stopped = true
	o.cancel()
	if o.socket != nil {
		_ = o.socket.Close()
	}
}

// end makes stop do nothing from now on, and reports whether it was called.
func (o *opening) end() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over, o.socket = true, nil
	return o.stopped
}

// leave sets the limit, since nobody may come any more. The caller has the turn.
func (o *opening) leave() {
	if o.limit == nil {
		o.limit = time.AfterFunc(openLimit-time.Since(o.began), o.stop)
	}
}

// collect takes what an attempt has made that is over, if there is one, or an older
// connection whose answer has come. A failure that nobody waited for is forgotten: it
// says nothing about now.
func (l *lane) collect() {
	l.regain()
	o := l.opening
	if o == nil {
		return
	}
	select {
	case <-o.done:
	default:
		return
	}
	l.opening = nil
	if o.limit != nil {
		o.limit.Stop()
	}
	if o.c == nil {
		if o.limit != nil {
			l.db.log.Debug("pgmutex: an attempt to connect failed after its caller had left", "lane", l.which, "error", o.err)
		}
		return
	}
	if l.c != nil { // regained
		o.c.close()
		return
	}
	l.put(o.c, o.at)
}

// put gives the lane a connection that was made at a time.
func (l *lane) put(c conn, at time.Time) {
	l.c, l.used = c, at
	l.db.learn(c.facts())
}

// abandon ends the attempt under way, if there is one.
func (l *lane) abandon() {
	if o := l.opening; o != nil {
		o.stop()
		<-o.done
		l.collect()
	}
}

// dialer wraps dial, so that deaf and stop know of it.
func (o *opening) dialer(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if err := o.keep(nil); err != nil {
			return nil, err
		}
		o.dialing.Store(int64(time.Since(o.began)))
		c, err := dial(ctx, network, addr)
		o.dialing.Store(0)
		if err != nil {
			return nil, err
		}
		if err := o.keep(c); err != nil {
			_ = c.Close()
			return nil, err
		}
		return c, nil
	}
}

// keep takes a socket that stop closes. After the end there are no others than
// those of requests to cancel a statement, which end by themselves.
func (o *opening) keep(c net.Conn) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.stopped:
		return errStopped
	case !o.over:
		o.socket = c
	}
	return nil
}

// deaf reports whether the host that is being asked does not hear.
func (o *opening) deaf() bool {
	asked := time.Duration(o.dialing.Load())
	return asked > 0 && time.Since(o.began)-asked > deafAfter
}

// knock asks the hosts one after the other. Where there are several, each has its
// share of the time that the first caller had, so that one which swallows packets
// does not keep it from the next; when that time is over, they are asked again
// and have twice as long each, until one of them answers.
func (o *opening) knock(ctx context.Context, config *pgx.ConnConfig) (*pgx.Conn, error) {
	full := perHost(ctx, config)
	config.ConnectTimeout = full
	if o != nil && !o.soon.IsZero() {
		first, cancel := context.WithDeadline(ctx, o.soon)
		config.ConnectTimeout = perHost(first, config)
		cancel()
	}
	for {
		pg, err := pgx.ConnectConfig(ctx, config)
		if err == nil || config.ConnectTimeout >= full || ctx.Err() != nil || !pgconn.Timeout(err) {
			return pg, err
		}
		o.failed.Store(&err)
		config.ConnectTimeout = min(2*config.ConnectTimeout, full)
	}
}

// late is the error of a caller whose context has ended before the attempt did.
func (w *owned) late(ctx context.Context, o *opening) error {
	var err error
	if failed := o.failed.Load(); failed != nil {
		err = *failed
	}
	return connectError(ctx, w.recipe.config.ConnConfig, w.recipe.show, err)
}
