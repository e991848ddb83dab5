package pgdb

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A Running is a statement that has been sent. Whoever waits for its answer may
// leave, and another goroutine wait on; see [DB.Begin].
type Running struct {
	l    *lane
	c    *ownConn
	st   Statement
	args []any
	p    *preparation

	x    *Exchange
	rows [][][]byte
	done bool
	err  error

	broken bool // the connection failed before it gave an answer
}

// Begin sends a statement if that takes no waiting: where the lane is free, and has
// a connection of our own that is in use and has prepared the statement, which is
// small. Otherwise it does nothing and returns nil, and [DB.Run] is the way. To wake
// up a goroutine that waits for the server, and to be woken up by it, is a tenth of
// a short statement.
//
// Nobody else can use the lane until [Running.Finish], which has to be called.
func (db *DB) Begin(which Lane, st Statement, args []any) *Running {
	l := db.lanes[which]
	if !l.free() {
		return nil
	}
	l.collect()
	var r *Running
	if l.c != nil && (which == Keep || time.Since(l.used) <= askAfter) && !l.c.stale() {
		r = l.send(st, args)
	}
	if r == nil {
		l.turn <- struct{}{}
	}
	return r
}

// send sends a statement over the lane's connection, if it can be sent in one piece.
// The caller has the turn.
func (l *lane) send(st Statement, args []any) *Running {
	c, ok := l.c.(*ownConn)
	if !ok || c.mode != pgx.QueryExecModeCacheStatement || c.traced {
		return nil
	}
	r := &Running{l: l, c: c, st: st, args: args, p: c.preparations[st.text(c.known.Settings)]}
	if r.p == nil || c.eqb.Build(c.pg.TypeMap(), r.p.sd, args) != nil || !small(c.eqb.ParamValues) {
		return nil
	}
	c.warned.Store(false)
	r.x, r.err = Send(c.pg.PgConn(), Prepared{
		Name: r.p.sd.Name, Params: c.eqb.ParamValues, ParamFormats: c.eqb.ParamFormats, ResultFormats: r.p.formats,
	})
	r.done = r.err != nil
	return r
}

// small reports whether parameters fit into what a socket takes at once: the server
// has answered everything before.
func small(params [][]byte) bool {
	size := 0
	for _, p := range params {
		size += len(p) + 8
	}
	return size <= 4096
}

// Wait reads the answer, until ctx ends at most, and reports whether it is there. It
// may be called again, by one goroutine at a time.
func (r *Running) Wait(ctx context.Context) bool {
	if r.done {
		return true
	}
	pc := r.c.pg.PgConn()
	var mu sync.Mutex
	reading := true
	stop := context.AfterFunc(ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		if reading {
			Interrupt(pc)
		}
	})
	r.rows, r.done, r.err = r.x.Receive(time.Time{})
	if !stop() {
		// It may come only now, when the connection is somebody else's.
		mu.Lock()
		reading = false
		mu.Unlock()
		_ = pc.Conn().SetReadDeadline(time.Time{})
	}
	return r.done
}

// Only returns the row of an answer that is there and has one. It is valid until
// [Running.Finish].
func (r *Running) Only() (Row, bool) {
	if !r.done || r.err != nil || len(r.rows) != 1 {
		return nil, false
	}
	return exchanged{r, r.rows[0]}, true
}

// Finish is the rest of [DB.Run], with the same promises: it waits for the answer,
// until ctx ends at most, and frees the lane.
func (r *Running) Finish(ctx context.Context, each func(Row) error) error {
	sound := false
	defer func() {
		if !sound {
			r.l.drop()
		}
		r.l.give()
	}()
	err := r.settle(ctx, each)
	sound = r.l.c == nil || r.c.usable()
	return err
}

// settle waits for the answer, until ctx ends at most. If that comes first, the lane
// has no connection afterwards.
func (r *Running) settle(ctx context.Context, each func(Row) error) error {
	if r.Wait(ctx) {
		return r.outcome(ctx, each)
	}
	if r.l.which == Keep {
		r.late()
	} else {
		r.cancel()
		r.l.c = nil
	}
	return &Error{Class: Unknown, what: r.st.Name, err: contextError(ctx)}
}

func (r *Running) outcome(ctx context.Context, each func(Row) error) error {
	switch SQLState(r.err) {
	case "":
	case "0A000", "26000", "42P05": // refused before it did anything; run knows what to do
		return r.c.run(ctx, r.st, r.args, each)
	}
	if r.err != nil {
		r.broken = r.c.pg.IsClosed()
		return r.c.failed(ctx, r.st.Name, r.err)
	}
	var stop error
	for _, values := range r.rows {
		if stop == nil && each != nil {
			stop = each(exchanged{r, values})
		}
	}
	switch {
	case stop != nil:
		return r.c.failed(ctx, r.st.Name, &Error{Class: Unknown, err: stop})
	case r.c.warned.Load():
		return &Error{Class: Unknown, Code: "01000", what: r.st.Name, err: errNotDurable}
	}
	return nil
}

// cancelFor bounds the request to cancel a statement that nobody waits for any more.
const cancelFor = 2 * time.Second

// cancel gives the connection up, with what the server may still be doing: as pgx
// does with one whose context ends.
func (r *Running) cancel() {
	db, pc := r.l.db, r.c.pg.PgConn()
	// The lane is ours still, so Close is waiting for it and not for this yet.
	db.work.Go(func() {
		ctx, end := context.WithTimeout(db.life, cancelFor)
		defer end()
		_ = pc.CancelRequest(ctx)
		sever(pc)
	})
}

// exchanged is one row of an answer.
type exchanged struct {
	r      *Running
	values [][]byte
}

func (e exchanged) Scan(dest ...any) error {
	return pgx.ScanRow(e.r.c.pg.TypeMap(), e.r.p.fields, e.values, dest...)
}

func (e exchanged) Session() any { return e.r.c.session }

// A preparation is a statement that a connection has prepared.
type preparation struct {
	sd      *pgconn.StatementDescription
	formats []int16
	fields  []pgconn.FieldDescription // with these formats
}

// prepare makes sure that a text is prepared. Pgx would do so by itself, but would
// not say as what.
func (c *ownConn) prepare(ctx context.Context, text string) error {
	if c.preparations[text] != nil {
		return nil
	}
	sd, err := c.pg.Prepare(ctx, text, text)
	if err != nil {
		return err
	}
	if c.preparations == nil {
		c.preparations = map[string]*preparation{}
	}
	p := &preparation{sd: sd}
	for _, field := range sd.Fields {
		field.Format = c.pg.TypeMap().FormatCodeForOID(field.DataTypeOID)
		p.formats, p.fields = append(p.formats, field.Format), append(p.fields, field)
	}
	c.preparations[text] = p
	return nil
}

// unprepare forgets a text that the server has a plan for which no longer fits.
func (c *ownConn) unprepare(ctx context.Context, text string) error {
	delete(c.preparations, text)
	return c.pg.Deallocate(ctx, text)
}
