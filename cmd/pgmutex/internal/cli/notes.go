package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/supervise"
)

// notes is what a run says about waiting: one line that is rewritten on a
// terminal, and elsewhere one line when it begins and one a minute.
type notes struct {
	r        *runner
	terminal bool
	start    time.Time
	hold     atomic.Pointer[pgmutex.Hold] // once there is one

	mu      sync.Mutex
	seen    *pgmutex.Event // the last look at the holder
	running bool
	over    chan struct{}
	done    chan struct{}
	ended   bool

	toldOnce sync.Once
	lostOnce sync.Once
	lost     chan struct{} // closed when the reason of a loss is known
}

const (
	rewrite = time.Second
	repeat  = time.Minute
)

func newNotes(r *runner) *notes {
	return &notes{
		r: r, terminal: supervise.IsTerminal(2), start: time.Now(),
		over: make(chan struct{}), done: make(chan struct{}), lost: make(chan struct{}),
	}
}

func (n *notes) hooks() pgmutex.Hooks {
	h := pgmutex.Hooks{
		Lost: func(context.Context, pgmutex.Event) { n.lostOnce.Do(func() { close(n.lost) }) },
	}
	if n.r.quiet {
		return h
	}
	h.Contended = func(_ context.Context, e pgmutex.Event) {
		if !n.r.noWait {
			n.look(e)
		}
	}
	h.Waiting = func(_ context.Context, e pgmutex.Event) { n.look(e) }
	h.Alert = func(_ context.Context, e pgmutex.Event) {
		if e.Rival != "" {
			n.note("%q: its holder %q has been silent for %s", n.r.lock, e.Rival, span(e.Age))
		} else {
			n.note("%q: no heartbeat has been confirmed for %s", n.r.lock, span(e.Age))
		}
	}
	h.AlertCleared = func(_ context.Context, e pgmutex.Event) {
		// What has ended is cleared, too.
		if hold := n.hold.Load(); e.Rival != "" {
			n.note("%q: %q is no longer silent, or no longer its holder", n.r.lock, e.Rival)
		} else if hold != nil && hold.Held() {
			n.note("%q: heartbeats are confirmed again", n.r.lock)
		}
	}
	return h
}

// look notes what an attempt showed of the holder.
func (n *notes) look(e pgmutex.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ended {
		return
	}
	n.seen = &e
	if !n.running {
		n.running = true
		n.print()
		go n.tell()
	}
}

func (n *notes) tell() {
	defer close(n.done)
	every := repeat
	if n.terminal {
		every = rewrite
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			n.mu.Lock()
			n.print()
			n.mu.Unlock()
		case <-n.over:
			return
		}
	}
}

// print is called with mu held.
func (n *notes) print() {
	e := n.seen
	text := fmt.Sprintf("waiting for %q", n.r.lock)
	if waited := time.Since(n.start).Round(time.Second); waited > 0 {
		text += fmt.Sprintf(" for %s", span(waited))
	}
	if e.Rival != "" {
		text += fmt.Sprintf(": held by %q%s", e.Rival, where(e.Details))
		if e.Details[backend] == "" {
			text += fmt.Sprintf(", last heartbeat %s ago", span(e.Age))
		}
	}
	if e.Place > 0 {
		text += fmt.Sprintf(", place %d", e.Place)
	}
	if !n.terminal {
		n.r.say("%s", text)
		return
	}
	line := []rune("pgmutex: " + oneLine(text))
	if width := supervise.Width(2); len(line) >= width {
		line = line[:max(width-1, 0)]
	}
	fmt.Fprintf(n.r.err, "\r\x1b[K%s", string(line))
}

// note prints a line of its own.
func (n *notes) note(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.clear()
	n.r.say(format, args...)
}

// clear removes the line that is being rewritten. Called with mu held.
func (n *notes) clear() {
	if n.terminal && n.running && !n.ended {
		fmt.Fprint(n.r.err, "\r\x1b[K")
	}
}

// stop ends the notes about waiting.
func (n *notes) stop() {
	n.mu.Lock()
	n.clear()
	first, running := !n.ended, n.running
	n.ended = true
	n.mu.Unlock()
	if first {
		close(n.over)
	}
	if running {
		<-n.done
	}
}

// refined bounds the wait for the reason of a loss, which the client looks up
// for a second at most.
const refined = 1500 * time.Millisecond

// tellLoss prints the one line about a loss, with the best known reason, and
// returns when that is done.
func (n *notes) tellLoss(hold *pgmutex.Hold, released error) {
	n.toldOnce.Do(func() {
		timer := time.NewTimer(refined)
		defer timer.Stop()
		select {
		case <-n.lost:
		case <-timer.C:
		}
		var lost *pgmutex.LostError
		if errors.As(released, &lost) || errors.As(hold.Err(), &lost) {
			text := plainError(lost)
			if lost.Reason() == pgmutex.LostReleased {
				if why := n.r.store.StopReason(n.r.lock, n.r.flags.full(n.r.lock), hold.Info().Term); why != "" {
					text += fmt.Sprintf(", who says %q", why)
				}
			}
			n.r.say("%s", text)
			return
		}
		n.r.say("lost %q", n.r.lock)
	})
}
