package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/pgmutex/pgmutex"
)

// pastJSON is an ended hold in JSON; see statusJSON.
type pastJSON struct {
	Name       string      `json:"name"`
	Holder     string      `json:"holder"`
	Term       string      `json:"term"`
	Token      string      `json:"token,omitempty"`
	AcquiredAt time.Time   `json:"acquired_at"`
	EndedAt    time.Time   `json:"ended_at"`
	Held       float64     `json:"held"`
	End        pgmutex.End `json:"end"`
	By         string      `json:"by,omitempty"`
	Reason     string      `json:"reason,omitempty"`
}

func pastObject(p pgmutex.PastHold) pastJSON {
	return pastJSON{
		Name: p.Name, Holder: p.Holder, Term: p.Term, Token: number(p.Token),
		AcquiredAt: p.AcquiredAt, EndedAt: p.EndedAt, Held: seconds(p.EndedAt.Sub(p.AcquiredAt)),
		End: p.End, By: p.By, Reason: p.Reason,
	}
}

// shownHolds is how much of the history is shown if nothing else is asked for.
const shownHolds = 100

func (a *app) history() *cobra.Command {
	var o output
	limit := shownHolds
	c := &cobra.Command{
		Use:   "history [LOCK]",
		Short: "Show holds that have ended, and how",
		Long: `Show holds that have ended, of one lock or of all, the newest first, as far back
as the store keeps them: "released" by their holder, "taken over" once they were
stale, or "forced" by an operator.`,
		Example: `  pgmutex history
  pgmutex history nightly-report --limit 10 --json`,
		Args:              oneArg("LOCK", false),
		ValidArgsFunction: a.heldNames,
	}
	o.add(c)
	c.Flags().IntVar(&limit, "limit", shownHolds, "show `N` at most; 0 for all")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.check(); err != nil {
			return err
		}
		if limit < 0 {
			return usage("--limit: must not be negative")
		}
		s, err := a.open(cmd, pgmutex.Options{}, false)
		if err != nil {
			return err
		}
		defer closeStore(s)
		name := ""
		if len(args) > 0 {
			name = args[0]
			if err := a.checkName(s, name); err != nil {
				return err
			}
		}
		t, shown := table{}, 0
		t.row("NAME", "HOLDER", "TOKEN", "SINCE", "HELD", "END", "BY", "REASON")
		for p, err := range s.Client().History(cmd.Context(), name) {
			if err != nil {
				return s.Code(err)
			}
			if o.json {
				if err := writeJSON(a.out, pastObject(p)); err != nil {
					return err
				}
			} else {
				t.row(word(p.Name), cell(p.Holder), cell(number(p.Token)), moment(p.AcquiredAt),
					span(p.EndedAt.Sub(p.AcquiredAt)), string(p.End), cell(p.By), cell(p.Reason))
			}
			if shown++; shown == limit {
				break
			}
		}
		if o.json || shown == 0 {
			return nil
		}
		return t.write(a.out)
	}
	return c
}
