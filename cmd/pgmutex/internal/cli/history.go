package cli

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/exitcode"
	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/store"
	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/supervise"
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
	c.Flags().Var(most{&limit}, "limit", "show `N` at most; 0 for all")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.check(); err != nil {
			return err
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
			switch {
			case errors.Is(err, errors.ErrUnsupported) && !s.Local && s.Engine == store.Advisory:
				return exitcode.With(exitcode.Unavailable, errNoHistory)
			case err != nil:
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
		switch {
		case o.json:
			return nil
		case shown > 0:
			return t.write(a.out)
		case supervise.IsTerminal(1): // as for an empty list
			a.say("no hold%s has ended, as far back as the store keeps them", of(name))
		}
		return nil
	}
	return c
}

// errNoHistory is the answer for advisory locks, with which the server keeps
// nothing once they are given back.
var errNoHistory = errors.New(`the advisory engine keeps no history: "pgmutex list" and "pgmutex show" tell who holds a lock now, and --engine lease keeps one`)

// of names the lock that was asked for, if it was one.
func of(name string) string {
	if name == "" {
		return ""
	}
	return fmt.Sprintf(" of %q", name)
}

// most is the value of a flag: how many at most.
type most struct{ to *int }

func (m most) Set(text string) error {
	n, err := strconv.Atoi(text)
	switch {
	case err != nil:
		return fmt.Errorf("must be a whole number, such as 10, or 0 for all")
	case n < 0:
		return fmt.Errorf("must not be negative")
	}
	*m.to = n
	return nil
}

func (m most) String() string {
	if m.to == nil {
		return ""
	}
	return strconv.Itoa(*m.to)
}

// Type is what help shows.
func (m most) Type() string { return "N" }
