// Package cli is the command line: one file for each command, and beside them
// what they share.
package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/exitcode"
	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/store"
	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/supervise"
)

// Main runs the command line and returns the exit code.
func Main(args []string) int {
	a := &app{out: os.Stdout, err: os.Stderr}
	root := a.root()
	root.SetArgs(args)
	err := root.Execute()
	code := exitcode.Of(err)
	if err != nil && err.Error() != "" {
		a.say("%s", plainError(err))
	}
	var coded *exitcode.Error
	if errors.As(err, &coded) && coded.Signal == int(syscall.SIGINT) && supervise.IsTerminal(2) {
		// A shell script stops after Ctrl-C only if its command ended by it. The
		// shell's $? is the same either way.
		supervise.DieOf(syscall.SIGINT)
		<-time.After(time.Second) // the signal may take a moment
	}
	return code
}

// app is what the commands share.
type app struct {
	out, err io.Writer
	flags    settings
}

// say writes one line of our own words.
func (a *app) say(format string, args ...any) {
	fmt.Fprintf(a.err, "pgmutex: %s\n", oneLine(fmt.Sprintf(format, args...)))
}

// glossary is what the other texts take for granted.
const glossary = `Words
  lease  a lock kept by heartbeats; --stale after the last one others may take it
  term   one acquisition of a lock: it names this very hold
  token  the fencing token, a number that rises with every grant of a name`

const exitCodes = `Exit codes
  the command's own, or 128+n when signal n ended it
   64  wrong flags or arguments; nothing was connected to
   69  the store cannot be reached, or cannot do it
   70  a mistake in pgmutex
   75  somebody else holds the lock, or the wait is over (-E changes it)
   76  the lock was lost while the command ran (--lost-exit-code changes it)
   77  the role lacks a right in the store
   78  no store is chosen, or it is not set up
  126  the command cannot be executed
  127  there is no such command`

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "pgmutex",
		Short: "One at a time, across hosts, on the PostgreSQL you already run",
		Long: `pgmutex runs a command while holding a lock that is kept in PostgreSQL, so that
one such command runs at a time, across processes and hosts.

The store is the database named by --url, by PGMUTEX_URL or by libpq's variables
(PGHOST, PGHOSTADDR, PGPORT, PGDATABASE, PGSERVICE), or with --local a file of
this machine.

` + glossary + `

` + exitCodes,
		Example: `  pgmutex run -n -q -E 0 nightly-report -- ./report --all   (in a crontab: skip in silence while it runs elsewhere)
  pgmutex show nightly-report                               (who holds it, who waits)
  pgmutex release nightly-report --force                    (ask that holder to stop)`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          subcommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.Version = built().String()
	root.SetVersionTemplate("pgmutex {{.Version}}\n")
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &exitcode.Error{Code: exitcode.Usage, Err: fmt.Errorf("%w (see %q)", err, cmd.CommandPath()+" --help")}
	})
	a.flags.add(root.PersistentFlags())
	for _, c := range []*cobra.Command{
		a.run(), a.list(), a.show(), a.history(), a.release(), a.init(), a.doctor(), a.monitor(), a.version(),
	} {
		c.RunE = coded(c.RunE)
		root.AddCommand(c)
	}
	return root
}

// subcommand refuses what is no command. An argument that looks like a
// connection string may hold a password and is not repeated.
func subcommand(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case store.LooksSecret(args[0]):
		return usage("a connection string is no command: use --url or, better, PGMUTEX_URL")
	}
	hint := ""
	if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
		hint = fmt.Sprintf("; did you mean %q?", similar[0])
	}
	return usage("unknown command %q%s", args[0], hint)
}

// coded makes the errors of commands that name no exit code internal ones, but
// for what the store cannot do.
func coded(run func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := run(cmd, args)
		if errors.Is(err, errors.ErrUnsupported) {
			return exitcode.With(exitcode.Unavailable, err)
		}
		return exitcode.With(exitcode.Internal, err)
	}
}

func usage(format string, args ...any) error {
	return &exitcode.Error{Code: exitcode.Usage, Err: fmt.Errorf(format, args...)}
}

// oneArg returns a check for at most or exactly one argument.
func oneArg(what string, required bool) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case required && len(args) == 0:
			return usage("%s is missing", what)
		case len(args) > 1:
			return usage("one %s, not %d", what, len(args))
		}
		return nil
	}
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage("%s takes no arguments", cmd.CommandPath())
	}
	return nil
}
