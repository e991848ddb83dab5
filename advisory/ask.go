package advisory

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/pgdb"
)

// A holder is asked to give one key back over a channel of its session. A session
// that listens there says so by a lock that all such sessions share; one that has
// heard a request, by a lock that stands for the key until that has been given
// back. So whoever asks knows that it was heard, and others see it.

const (
	// hears is the key of the sessions that hear requests, beside ours.
	hears = "1885826424, 2"

	// stopPrefix stands before a process in the name of its channel.
	stopPrefix = "pgmutex_stop_"
)

var (
	askFor  = read("ask", "{{channel}}", stopPrefix, "{{hears}}", hears)
	asked   = read("asked").unprepared()
	unasked = read("unasked").unprepared()
)

// hear makes the session one that can be asked. Where that fails it is none, and
// nothing else is.
func (s *session) hear() {
	if s.w.hears() && !s.e.set.pollOnly {
		_ = s.command("LISTEN " + pgx.Identifier{stopPrefix + strconv.FormatInt(s.backend, 10)}.Sanitize() +
			"; SELECT pg_catalog.pg_try_advisory_lock_shared(" + hears + ")")
	}
}

// stop takes a request: the key, and who asks. It runs in serve's goroutine, in
// the middle of a statement perhaps.
func (s *session) stop(request string) {
	text, by, _ := strings.Cut(request, " ")
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return // anybody may notify
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.table.ids[id] {
		if h.stop {
			continue
		}
		h.stop, h.stopBy = true, by
		s.submitLocked(&op{run: func() { s.show(h) }, done: make(chan struct{})}, true)
	}
}

// show shows that a request was heard, if it still is for something.
func (s *session) show(h *holding) {
	if s.table.term(h.term.ID) != h {
		return
	}
	rows, err := s.query(asked, h.id)
	h.shown = err == nil && len(rows) == 1 && truth(rows[0][0])
}

// unshow takes that back, after whatever is being answered.
func (s *session) unshow(h *holding) {
	if h.shown {
		s.later(func() { _, _ = s.query(unasked, h.id) })
	}
}

// asked tells whether the holder of a term is asked to stop, and by whom.
func (s *session) asked(termID string) (stop bool, by string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.table.term(termID); h != nil {
		return h.stop, h.stopBy
	}
	return false, ""
}

// answering bounds the wait for a session to show that it has heard a request: it
// may be in the middle of a statement.
const answering = 15 * time.Second

// ask asks the holder to stop, and returns when it has heard that, or holds the
// key no more.
func (e *store) ask(ctx context.Context, seen engine.Status, id, pid int64, started any, by string) error {
	found, heard := false, false
	st := pgdb.Statement{Name: askFor.name, SQL: askFor.text}
	err := e.side.Run(ctx, pgdb.Work, st, []any{id, pid, started, by}, func(r pgdb.Row) error {
		found = true
		var notified *string
		return r.Scan(&heard, &notified)
	})
	switch {
	case err != nil:
		return err
	case !found:
		return e.missed(ctx, seen.Name, id)
	case !heard:
		return fmt.Errorf("the holder of %q does not hear requests to stop: %w", seen.Name, errors.ErrUnsupported)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, answering, errors.New("the holder does not answer"))
	defer cancel()
	return e.until(ctx, seen, id, "the holder has been asked to stop; whether it has heard it is not known",
		func(k keyHolder) bool { return !k.asked })
}

// until waits until the session that was shown no longer holds the key in a way
// that still says.
func (e *store) until(ctx context.Context, seen engine.Status, id int64, unknown string, still func(keyHolder) bool) error {
	ticker := time.NewTicker(forcePause)
	defer ticker.Stop()
	for {
		all, err := e.look(ctx, listOne, id)
		if err != nil {
			return fmt.Errorf("%s: %w", unknown, err)
		}
		there := false
		for _, k := range all {
			there = there || k.termID() == seen.Term && still(k)
		}
		if !there {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", unknown, context.Cause(ctx))
		}
	}
}
