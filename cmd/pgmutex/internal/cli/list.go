package cli

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/pgmutex/pgmutex"
)

func (a *app) list() *cobra.Command {
	var o output
	c := &cobra.Command{
		Use:   "list",
		Short: "Show what is held, by whom, since when, and how many wait",
		Long: `Show every lock of the store, or of the namespace, that somebody holds.

The state is "held"; "late" when the holder has been silent for longer than it
promised to be before others are alerted; or "stale" when anybody may take the
lock over. Ages are by the server's clock.`,
		Args: noArgs,
	}
	o.add(c)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.check(); err != nil {
			return err
		}
		s, err := a.open(cmd, pgmutex.Options{}, false)
		if err != nil {
			return err
		}
		defer closeStore(s)
		t := table{}
		t.row("NAME", "STATE", "HOLDER", "HOST", "PID", "SINCE", "HEARTBEAT", "STALE IN", "WAITERS")
		for status, err := range s.Client().List(cmd.Context()) {
			if err != nil {
				return s.Code(err)
			}
			if o.json {
				if err := writeJSON(a.out, statusObject(status)); err != nil {
					return err
				}
				continue
			}
			t.row(word(status.Name), o.state(status.State), cell(status.Holder),
				cell(status.Details["host"]), cell(status.Details["pid"]), moment(status.Since),
				span(status.HeartbeatAge)+" ago", span(status.Remaining), strconv.Itoa(status.Waiters))
		}
		if o.json || len(t.rows) == 1 {
			return nil
		}
		return t.write(a.out)
	}
	return c
}
