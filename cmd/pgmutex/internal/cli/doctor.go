package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/doctor"
	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/exitcode"
	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/store"
)

// examining bounds the whole look: a server that is asked whether it is well
// must not be waited for like one that is.
const examining = 30 * time.Second

func (a *app) doctor() *cobra.Command {
	var o output
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check the store, and say how to mend what is wrong",
		Long: `Look at the server, the way to it and the lock table, or at the local store, and
say of each thing what was found and, unless it is ok, what to do. Nothing is
changed.

A note is worth knowing; a warning means that something should be done; an error
that locks cannot be taken, or that not all that is promised holds.

Exit codes
    0  all is ok, or there are notes only
    1  the worst finding is a warning
    2  the worst finding is an error
   69  the store cannot be reached
   64, 70, 78 as in "pgmutex help"`,
		Example: `  pgmutex doctor
  pgmutex doctor --json`,
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
		ctx, cancel := context.WithTimeout(cmd.Context(), examining)
		defer cancel()
		findings, err := examine(ctx, s)
		if err != nil {
			return exitcode.With(exitcode.Unavailable, err)
		}
		for _, f := range findings {
			if o.json {
				err = writeJSON(a.out, f)
			} else {
				err = o.finding(a, f)
			}
			if err != nil {
				return err
			}
		}
		worst := doctor.Worst(findings)
		code := map[doctor.State]int{doctor.Warning: exitcode.Warnings, doctor.Error: exitcode.Errors}[worst]
		if code != exitcode.OK && !o.json {
			a.say("exit code %d: %s is of state %q", code, strings.Join(doctor.Named(findings, worst), ", "), worst)
		}
		return exitcode.Silent(code)
	}
	return c
}

// finding prints one, and its fix on a line of its own.
func (o *output) finding(a *app, f doctor.Finding) error {
	color := map[doctor.State]string{doctor.OK: "32", doctor.Note: "36", doctor.Warning: "33", doctor.Error: "31"}[f.State]
	text := fmt.Sprintf("%s  %s: %s\n", o.paint(color, fmt.Sprintf("%-7s", f.State)), f.Name, oneLine(f.Found))
	if f.Fix != "" {
		text += fmt.Sprintf("         fix: %s\n", oneLine(f.Fix))
	}
	_, err := fmt.Fprint(a.out, text)
	return err
}

func examine(ctx context.Context, s *store.Store) ([]doctor.Finding, error) {
	if s.Local {
		return examineLocal(ctx, s)
	}
	defer closeStore(s)
	problem, rights, err := s.Verify(ctx)
	if err != nil {
		return nil, err
	}
	facts, err := doctor.Read(ctx, doctor.Target{
		URL: s.URL, Table: s.Table, Advisory: s.Engine == store.Advisory, Problem: problem, RightsOnly: rights,
	})
	if err != nil {
		return nil, err
	}
	return facts.Judge(), nil
}

// examineLocal reads the file before it opens the store, and makes none.
func examineLocal(ctx context.Context, s *store.Store) ([]doctor.Finding, error) {
	path, err := s.File()
	if err != nil {
		return nil, exitcode.With(exitcode.NotConfigured, err)
	}
	facts := doctor.ReadLocal(path)
	if facts.There {
		defer closeStore(s)
		for _, err := range s.Client().List(ctx) {
			if err != nil {
				facts.OpenError = plainError(err)
			}
			break
		}
	}
	return facts.Judge(), nil
}
