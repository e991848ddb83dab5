package cli

import (
	"bufio"
	"context"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/store"
	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/supervise"
)

// lister is one list.
type lister struct {
	*app
	output
	store *store.Store

	watch  bool
	every  duration
	dEvery time.Duration
	match  string
	states []string
}

func (a *app) list() *cobra.Command {
	l := &lister{app: a, dEvery: 2 * time.Second}
	l.every = duration{to: &l.dEvery, least: 100 * time.Millisecond}
	c := &cobra.Command{
		Use:   "list",
		Short: "Show what is held, by whom, since when, and how many wait",
		Long: `Show every lock of the store, or of the namespace, that somebody holds.

The state is "held"; "late" when the holder has been silent for longer than it
promised to be before others are alerted; or "stale" when anybody may take the
lock over. Ages are by the server's clock.

With --watch the list is shown anew every two seconds, until a signal comes. With
--json as well, a lock is written when it is first seen and whenever its holder,
state or number of waiters is another, and as "free" when it has gone.`,
		Example: `  pgmutex list
  pgmutex list --state late,stale
  pgmutex list --match 'nightly-*' --json
  pgmutex list --watch`,
		Args: noArgs,
	}
	l.add(c)
	f := c.Flags()
	f.BoolVar(&l.watch, "watch", false, "show it again and again")
	durationVar(f, &l.every, "every", "", "with --watch: how often")
	f.StringVar(&l.match, "match", "", "only names that match `PATTERN`, with *, ? and [a-z]; * stops at /")
	f.StringSliceVar(&l.states, "state", nil, "only these `STATES`: held, late, stale")
	c.RunE = func(cmd *cobra.Command, _ []string) error { return l.run(cmd) }
	return c
}

func (l *lister) run(cmd *cobra.Command) error {
	if err := l.check(); err != nil {
		return err
	}
	for _, s := range l.states {
		if !slices.Contains([]string{"held", "late", "stale"}, s) {
			return usage("--state: must be held, late or stale")
		}
	}
	if _, err := path.Match(l.match, ""); err != nil {
		return usage("--match: a bracket is not closed, or a backslash ends it")
	}
	if l.every.given && !l.watch {
		return usage("--every: needs --watch")
	}
	var err error
	if l.store, err = l.open(cmd, pgmutex.Options{}, false); err != nil {
		return err
	}
	defer closeStore(l.store)
	if l.watch {
		return l.follow(cmd.Context())
	}
	out := bufio.NewWriter(l.out)
	if l.json {
		err = l.each(cmd.Context(), func(s pgmutex.Status) error { return writeJSON(out, statusObject(s)) })
	} else {
		var t *table
		t, err = l.table(cmd.Context())
		switch {
		case err != nil:
		case len(t.rows) > 1:
			err = t.write(out)
		case supervise.IsTerminal(1): // where an empty answer looks like none
			l.say("nothing%s is held", l.asked())
		}
	}
	if err != nil {
		return err
	}
	return out.Flush()
}

// asked says that not all locks were asked for.
func (l *lister) asked() string {
	if l.match != "" || len(l.states) > 0 {
		return " that was asked for"
	}
	return ""
}

// each passes on what is held and is asked for.
func (l *lister) each(ctx context.Context, do func(pgmutex.Status) error) error {
	for s, err := range l.store.Client().List(ctx) {
		if err != nil {
			return l.store.Code(err)
		}
		if len(l.states) > 0 && !slices.Contains(l.states, string(s.State)) {
			continue
		}
		if l.match != "" {
			if ok, _ := path.Match(l.match, s.Name); !ok {
				continue
			}
		}
		if err := do(s); err != nil {
			return err
		}
	}
	return nil
}

func (l *lister) table(ctx context.Context) (*table, error) {
	t := &table{}
	t.row("NAME", "STATE", "HOLDER", "HOST", "PID", "SINCE", "HEARTBEAT", "STALE IN", "WAITERS")
	err := l.each(ctx, func(s pgmutex.Status) error {
		age, left := span(s.HeartbeatAge)+" ago", span(s.Remaining)
		host, pid := s.Details["host"], s.Details["pid"]
		if s.Details[backend] != "" {
			age, left, host = "-", "-", s.Details["address"]
		}
		t.row(shownName(s), l.state(s.State), cell(s.Holder), cell(host), cell(pid), moment(s.Since), age, left, strconv.Itoa(s.Waiters))
		return nil
	})
	return t, err
}

// shownName is a lock's name. Sessions that hold advisory locks show only their
// ids.
func shownName(s pgmutex.Status) string {
	if s.Name == "" {
		return "id:" + strconv.FormatInt(s.ID, 10)
	}
	return word(s.Name)
}

// heldNames completes the names of locks that are held. What cannot be asked in
// a moment is not completed.
func (a *app) heldNames(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	s, err := a.open(cmd, pgmutex.Options{}, true)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer closeStore(s)
	ctx, cancel := context.WithTimeout(cmd.Context(), completing)
	defer cancel()
	var names []string
	for status, err := range s.Client().List(ctx) {
		if err != nil || len(names) == mostCompleted {
			break
		}
		if status.Name != "" && strings.HasPrefix(status.Name, begun) && word(status.Name) == status.Name {
			names = append(names, status.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

const (
	completing    = 2 * time.Second
	mostCompleted = 1000
)
