package cli

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/store"
)

func (a *app) show() *cobra.Command {
	var o output
	c := &cobra.Command{
		Use:   "show LOCK",
		Short: "Show everything about one lock",
		Long: `Show everything that the store knows about one lock, which may as well be free,
and, with the lease engine, who waits for it in which order. Ages are by the
server's clock. The exit code is 0 for a lock that is free, too: see "state".`,
		Example: `  pgmutex show nightly-report
  pgmutex show nightly-report --json`,
		Args:              oneArg("LOCK", true),
		ValidArgsFunction: a.heldNames,
	}
	o.add(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.check(); err != nil {
			return err
		}
		s, err := a.open(cmd, pgmutex.Options{}, false)
		if err != nil {
			return err
		}
		defer closeStore(s)
		if err := a.checkName(s, args[0]); err != nil {
			return err
		}
		status, err := s.Client().Inspect(cmd.Context(), args[0])
		if err != nil {
			return s.Code(err)
		}
		var line []store.Waiter
		if status.Waiters > 0 {
			line, err = s.Waiters(cmd.Context(), a.flags.full(args[0]))
			if err != nil && !errors.Is(err, errors.ErrUnsupported) {
				return err
			}
		}
		if o.json {
			return writeJSON(a.out, shownObject(status, line))
		}
		t := o.status(status)
		for i, w := range line {
			state := fmt.Sprintf("seen %s ago", span(w.Seen))
			if w.Offered {
				state += ", its turn"
			}
			t.row(fmt.Sprintf("  place %d", i+1), cell(w.Holder)+", "+state)
		}
		return t.write(a.out)
	}
	return c
}

// checkName refuses a bad name before anything is connected to.
func (a *app) checkName(s *store.Store, name string) error {
	if store.LooksSecret(name) {
		return usage("a connection string is no lock name: use --url or, better, PGMUTEX_URL")
	}
	if err := s.Client().CheckName(name); err != nil {
		return usage("LOCK: %w", err)
	}
	a.warnPath(name)
	return nil
}

// status is one lock, a fact to a line.
func (o *output) status(s pgmutex.Status) *table {
	t := &table{}
	t.row("name", word(s.Name))
	t.row("id", strconv.FormatInt(s.ID, 10))
	t.row("engine", s.Engine)
	t.row("state", o.state(s.State))
	if s.State != pgmutex.StateFree {
		t.row("holder", cell(s.Holder))
		t.row("term", cell(s.Term))
		t.row("token", token(s))
		t.row("since", moment(s.Since))
		if s.Details[backend] == "" {
			t.row("heartbeat", span(s.HeartbeatAge)+" ago"+every(s))
			t.row("stale in", fmt.Sprintf("%s without a heartbeat", span(s.Remaining)))
		}
	}
	if s.StopAsked {
		t.row("asked to stop", "yes")
	}
	for _, key := range slices.Sorted(maps.Keys(s.Details)) {
		t.row("  "+word(key), cell(s.Details[key]))
	}
	t.row("waiters", strconv.Itoa(s.Waiters))
	return t
}

// token is the fencing token. A lease's row has it from the first heartbeat on; a
// holder that promises no heartbeats, as Python's do, has none at all.
func token(s pgmutex.Status) string {
	if s.Token == 0 && s.Engine == store.Lease && s.Heartbeat > 0 {
		return "-, not written yet: it comes with the first heartbeat"
	}
	return cell(number(s.Token))
}

// every tells what the holder promised, where it did.
func every(s pgmutex.Status) string {
	if s.Heartbeat == 0 {
		return ""
	}
	return fmt.Sprintf(", promised every %s", span(s.Heartbeat))
}
