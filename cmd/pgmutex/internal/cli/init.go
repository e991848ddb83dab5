package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/pgmutex/pgmutex"
)

func (a *app) init() *cobra.Command {
	var show bool
	var role, rights string
	c := &cobra.Command{
		Use:   "init",
		Short: "Set the store up, or bring it to this version",
		Long: `Make the tables of the lease engine, or bring them to this version. Locks that
are held stay held. When nothing is missing, nothing is changed, and no right to
create anything is needed. "run" does the same on first use where it may.

With --print, print the SQL instead, for psql; with --role also the rights that
this role needs to take locks. Other --rights are printed alone: those of a
"guard", whose transactions are guarded by a lock that another role holds, of a
"viewer", and of an "operator", who ends others' holds. That connects to nothing.`,
		Example: `  pgmutex init
  pgmutex init --print --role app | psql
  pgmutex init --print --role grafana --rights viewer | psql`,
		Args: noArgs,
	}
	c.Flags().BoolVar(&show, "print", false, "print the SQL instead of running it")
	c.Flags().StringVar(&role, "role", "", "with --print: grant `ROLE` what it needs")
	c.Flags().StringVar(&rights, "rights", "client", "with --role: `client`, guard, viewer or operator")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case cmd.Flags().Changed("role") && !show:
			return usage("--role: needs --print, since granting is for the owner of the table to do")
		case cmd.Flags().Changed("role") && role == "":
			return usage("--role: must not be empty")
		case cmd.Flags().Changed("rights") && role == "":
			return usage("--rights: needs --role")
		case !slices.Contains([]string{"client", "guard", "viewer", "operator"}, rights):
			return usage("--rights %q: want client, guard, viewer or operator", rights)
		case show && a.flags.Local != "":
			return usage("--print and --local disagree: the local store needs no set-up")
		case show:
			text, err := a.flags.script(role, rights)
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(a.out, text)
			return err
		}
		s, err := a.open(cmd, pgmutex.Options{}, false)
		if err != nil {
			return err
		}
		defer closeStore(s)
		switch {
		case s.Local:
			a.say("the local store needs no set-up")
			return nil
		case s.TableLess():
			a.say("the advisory engine needs no set-up, except with --table for tokens")
			return nil
		}
		if err := s.Migrate(cmd.Context()); err != nil {
			return err
		}
		a.say("the lock table is ready")
		return nil
	}
	return c
}
