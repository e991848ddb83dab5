package advisory

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/clock"
	"github.com/pgmutex/pgmutex/internal/pgdb"
	"github.com/pgmutex/pgmutex/internal/schema"
)

const (
	// defaultLease is S, after which the server ends a session that says nothing.
	defaultLease = 15 * time.Second
	minLease     = 3 * time.Second
	maxLease     = 10 * time.Minute

	maxHolds  = 1000
	nameLimit = 1024
)

// New returns an advisory engine with settings of its own, for pgmutex.New, which
// starts and closes it. It does no I/O. An error is about source or opts.
//
// The source is only a recipe for connections: a pool is neither used, changed
// nor closed; a *sql.DB lends one connection and is not closed.
func New[S pgdb.Source](source S, opts *Options) (engine.Engine, error) {
	set, err := opts.settings()
	if err != nil {
		return nil, err
	}
	dialer, err := pgdb.NewDialer(source)
	if err != nil {
		return nil, err
	}
	side, err := pgdb.Open(source, pgdb.Options{})
	if err != nil {
		return nil, err
	}
	e := &store{
		set:     set,
		sql:     newStatements(set.draw()),
		dialer:  dialer,
		side:    side,
		names:   newMemory[int64, string](10_000),
		endings: newMemory[string, error](10_000),
		doubts:  map[string]struct{}{},
	}
	e.life, e.end = context.WithCancel(context.Background())
	return e, nil
}

// store is the engine.
type store struct {
	set    settings
	sql    *statements
	dialer *pgdb.Dialer
	side   *pgdb.DB // for looking around and ending others' sessions; connects when used

	names   *memory[int64, string] // of ids that this client was asked about
	endings *memory[string, error] // of terms that were lost, by term ID

	life context.Context
	end  context.CancelFunc
	work sync.WaitGroup

	mu      sync.Mutex
	sink    engine.Sink
	cur     *session
	opening *opening // of the next session, nil when there is none
	closed  bool
	looks   int64 // answers that named a holder, see Rival.Heartbeat
	doubts  map[string]struct{}
}

var (
	_ engine.Engine    = (*store)(nil)
	_ engine.Queuer    = (*store)(nil)
	_ engine.Inspector = (*store)(nil)
	_ engine.Forcer    = (*store)(nil)
)

var (
	errClosed     = pgdb.ErrClosed
	errNotStarted = errors.New("the advisory engine is not started")
)

// Describe implements [engine.Engine].
func (e *store) Describe() engine.Description {
	return engine.Description{
		Name: "advisory",
		Defaults: engine.Timing{
			Heartbeat:    defaultLease / 6,
			AlertAfter:   defaultLease / 3,
			StaleAfter:   defaultLease,
			PollInterval: 100 * time.Millisecond,
		},
		MinStaleAfter: minLease,
		MaxStaleAfter: maxLease,
		Elapsed:       clock.Elapsed,
		NameLimit:     nameLimit,
		NameBytes:     true,
		MaxHolds:      maxHolds,
		Detached:      true,
		Shared:        true,
		Tokens:        e.set.tokens,
	}
}

// Start implements [engine.Engine].
func (e *store) Start(ctx context.Context, sink engine.Sink) error {
	e.mu.Lock()
	switch {
	case e.closed:
		e.mu.Unlock()
		return errClosed
	case e.sink != nil:
		e.mu.Unlock()
		return errors.New("the advisory engine is started already")
	}
	e.sink = sink
	e.mu.Unlock()
	err := error(nil)
	if e.set.tokens {
		if err = schema.Verify(ctx, e.side, e.set.names); err != nil {
			err = fmt.Errorf("advisory.Options.Table: %w", err)
		}
	}
	if err == nil {
		_, err = e.session(ctx)
	}
	if err != nil {
		e.mu.Lock()
		e.sink = nil
		e.mu.Unlock()
	}
	return err
}

// Close implements [engine.Engine]. Locks that are still held stay locked until
// the server ends their session for its silence, within StaleAfter.
func (e *store) Close(ctx context.Context) error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	e.mu.Unlock()
	e.end() // an attempt to connect ends with it

	done := make(chan struct{})
	go func() {
		defer close(done)
		if s := e.current(); s != nil {
			s.submit(&op{run: s.leave, done: make(chan struct{})}, false)
		}
		e.work.Wait()
	}()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		// The server does not answer. Its session is not waited for.
		err = fmt.Errorf("closing the lock session: %w", context.Cause(ctx))
		if s := e.current(); s != nil {
			s.desert()
		}
		<-done
	}
	return errors.Join(err, e.side.Close(ctx))
}

func (e *store) current() *session {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.cur
}

// An opening is a session that is being opened, for whoever needs one meanwhile.
type opening struct {
	done chan struct{}
	s    *session
	err  error
}

// openLimit is longer than anybody's patience is; a server that does not answer
// must not be waited for by those who come later.
const openLimit = 15 * time.Second

// session returns the session, opening one if there is none. The opening does not
// end with ctx: callers with little time would never get one otherwise.
func (e *store) session(ctx context.Context) (*session, error) {
	e.mu.Lock()
	switch {
	case e.closed:
		e.mu.Unlock()
		return nil, errClosed
	case e.sink == nil:
		e.mu.Unlock()
		return nil, errNotStarted
	case e.cur != nil:
		defer e.mu.Unlock()
		return e.cur, nil
	}
	o := e.opening
	if o == nil {
		o = &opening{done: make(chan struct{})}
		e.opening = o
		e.work.Go(func() { e.serve(o) })
	}
	e.mu.Unlock()
	select {
	case <-o.done:
		return o.s, o.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: connecting to %s: %w", errNotAsked, e.dialer.Address(), context.Cause(ctx))
	}
}

// serve is the life of a session, from its opening on.
func (e *store) serve(o *opening) {
	ctx, cancel := context.WithTimeout(e.life, openLimit)
	o.s, o.err = e.open(ctx)
	cancel()
	e.mu.Lock()
	e.opening = nil
	closed := e.closed
	if o.s != nil && !closed {
		e.cur = o.s
	}
	e.mu.Unlock()
	s := o.s
	if closed {
		o.s, o.err = nil, errClosed
	}
	close(o.done)
	switch {
	case s == nil:
		return
	case closed:
		s.w.close()
	default:
		s.serve()
		e.forget(s) // however it has ended
	}
	s.w.wait()
}

// forget makes the next acquisition open a new session.
func (e *store) forget(s *session) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cur == s {
		e.cur = nil
	}
}

// lost tells the end of a hold.
func (e *store) lost(term engine.Term, err error) {
	e.mu.Lock()
	sink := e.sink
	e.mu.Unlock()
	sink.Lost(term, engine.LostSessionEnded, "", err)
}

func (e *store) freed(name string) {
	e.mu.Lock()
	sink := e.sink
	e.mu.Unlock()
	if sink != nil { // notifications may come before Start has returned
		sink.Freed(name)
	}
}

// heard takes a notification; the channel is empty where it is not known. Others
// than ours are what a hook of the pool listens to.
func (e *store) heard(channel, payload string) {
	if strings.HasPrefix(channel, stopPrefix) {
		if s := e.current(); s != nil {
			s.stop(payload)
		}
		return
	}
	id, ours := idOf(channel)
	switch name, known := e.names.get(id); {
	case channel == "", ours && !known:
		e.freed("")
	case ours:
		e.freed(name)
	}
}

// Renew implements [engine.Engine]. One sign of life renews all.
func (e *store) Renew(ctx context.Context, batch []engine.Term) []engine.Standing {
	answers := make([]engine.Standing, len(batch))
	s := e.current()
	if s == nil {
		for i, term := range batch {
			answers[i] = e.gone(term)
		}
		return answers
	}
	err, underway, notRun := ask(ctx, s, true, s.renew, nil)
	for i, term := range batch {
		switch {
		case !s.standing(term):
			answers[i] = e.gone(term)
		case underway, notRun != nil, err != nil:
			answers[i].Err = errors.Join(err, notRun)
		default:
			answers[i].Health = engine.Held
			answers[i].Stop, answers[i].StopBy = s.asked(term.ID)
		}
	}
	return answers
}

// renew is a sign of life that is asked for.
func (s *session) renew() error {
	err := s.ping()
	if err != nil {
		s.die(err)
	}
	return err
}

// Explain implements [engine.Engine]. It needs no server: a hold is bound to its
// session, and how that ended was seen here or nowhere.
func (e *store) Explain(_ context.Context, batch []engine.Term) []engine.Standing {
	answers := make([]engine.Standing, len(batch))
	s := e.current()
	for i, term := range batch {
		if s != nil && s.standing(term) {
			answers[i].Health = engine.Held
			continue
		}
		answers[i] = e.gone(term)
	}
	return answers
}

// gone is the standing of a term that is on no session of ours.
func (e *store) gone(term engine.Term) engine.Standing {
	st := engine.Standing{Health: engine.Gone}
	if err, ok := e.endings.get(term.ID); ok {
		st.Reason, st.Err = engine.LostSessionEnded, err
	}
	return st
}
