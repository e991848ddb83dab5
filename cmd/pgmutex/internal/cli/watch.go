package cli

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/supervise"
)

// follow shows the list again and again. A store that cannot be reached ends it
// only if that is so from the start; later it is said once, and tried again.
func (l *lister) follow(ctx context.Context) error {
	screen := supervise.IsTerminal(1)
	ticker := time.NewTicker(l.dEvery)
	defer ticker.Stop()
	known := map[string]pgmutex.Status{}
	gone := false
	for first := true; ; first = false {
		var text bytes.Buffer
		var err error
		if l.json {
			err = l.changes(ctx, known, &text)
		} else {
			err = l.frame(ctx, &text, screen, first)
		}
		switch {
		case err == nil:
			gone = false
			if _, err := l.out.Write(text.Bytes()); err != nil {
				return err // nobody reads it any more
			}
		case first || ctx.Err() != nil:
			return err
		case !gone:
			gone = true
			l.say("%s; trying again every %s", plainError(err), span(l.dEvery))
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// frame writes the whole list: over the last one on a terminal, cut to its size,
// and elsewhere below it.
func (l *lister) frame(ctx context.Context, to *bytes.Buffer, screen, first bool) error {
	t, err := l.table(ctx)
	if err != nil {
		return err
	}
	if !screen {
		if !first {
			fmt.Fprintln(to)
		}
		fmt.Fprintf(to, "%s  %d held\n", moment(time.Now()), len(t.rows)-1)
		if len(t.rows) == 1 {
			return nil
		}
		return t.write(to)
	}
	columns, lines := supervise.Size(1)
	fmt.Fprintf(to, "\x1b[H%s  %d held, every %s\x1b[K\n", moment(time.Now()), len(t.rows)-1, span(l.dEvery))
	if first {
		to.Reset()
		fmt.Fprintf(to, "\x1b[H\x1b[2J%s  %d held, every %s\n", moment(time.Now()), len(t.rows)-1, span(l.dEvery))
	}
	if room := max(lines-3, 1); len(t.rows) > room+1 {
		more := len(t.rows) - 1 - room
		t.rows = t.rows[:room+1]
		t.row(fmt.Sprintf("… %d more", more))
	}
	var rows bytes.Buffer
	if err := t.write(&rows); err != nil {
		return err
	}
	for line := range strings.Lines(rows.String()) {
		fmt.Fprintf(to, "%s\x1b[K\n", cut(strings.TrimSuffix(line, "\n"), columns))
	}
	to.WriteString("\x1b[J")
	return nil
}

// cut shortens a line to a number of columns; escape sequences take none.
func cut(line string, columns int) string {
	var b strings.Builder
	escape, n := false, 0
	for _, r := range line {
		switch {
		case r == '\x1b':
			escape = true
		case escape:
			escape = r != 'm'
		default:
			if n++; n >= columns {
				continue // what colours has to get through
			}
		}
		b.WriteRune(r)
	}
	return b.String()
}

// changes writes the locks that are not as they were when last looked at. What
// is known stays as it is on failure.
func (l *lister) changes(ctx context.Context, known map[string]pgmutex.Status, to *bytes.Buffer) error {
	now := map[string]pgmutex.Status{}
	err := l.each(ctx, func(s pgmutex.Status) error {
		key := shownName(s) + s.Term // shared locks have several holders
		now[key] = s
		if old, ok := known[key]; ok && old.State == s.State && old.Waiters == s.Waiters && old.StopAsked == s.StopAsked {
			return nil
		}
		return writeJSON(to, statusObject(s))
	})
	if err != nil {
		return err
	}
	held := map[string]bool{}
	for _, s := range now {
		held[shownName(s)] = true
	}
	for _, key := range slices.Sorted(maps.Keys(known)) {
		old := known[key]
		if held[shownName(old)] {
			continue
		}
		held[shownName(old)] = true // say it once
		free := pgmutex.Status{Name: old.Name, ID: old.ID, Engine: old.Engine, State: pgmutex.StateFree}
		if err := writeJSON(to, statusObject(free)); err != nil {
			return err
		}
	}
	clear(known)
	maps.Copy(known, now)
	return nil
}
