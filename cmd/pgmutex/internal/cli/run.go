package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/exitcode"
	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/store"
	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/supervise"
	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/telemetry"
)

// runner is one run.
type runner struct {
	*app
	lock    string
	command []string
	store   *store.Store
	signals *supervise.Signals
	notes   *notes
	tracing *telemetry.Telemetry // nil without --otel

	holder                     string
	heartbeat, alert, stale    duration
	wait, killAfter            duration
	noWait, quiet, verbose     bool
	otel                       bool
	conflictCode, lostCode     int
	dHeartbeat, dAlert, dStale time.Duration
	dWait, dKillAfter          time.Duration
}

func (a *app) run() *cobra.Command {
	r := &runner{app: a, conflictCode: exitcode.Busy, lostCode: exitcode.Lost, dKillAfter: 10 * time.Second}
	c := &cobra.Command{
		Use:   "run [flags] LOCK [--] COMMAND [ARG…]",
		Short: "Run COMMAND while holding LOCK",
		Long: `Run COMMAND while holding LOCK, waiting for the lock if somebody else holds it.

COMMAND gets its arguments exactly as they are, never by way of a shell, and the
standard streams themselves. Its environment gains PGMUTEX_LOCK (the lock's full
name), PGMUTEX_TOKEN, PGMUTEX_HOLDER and PGMUTEX_TERM; "pgmutex help" says what
lease, term and token are. Signals are passed on to it and to everything that it
started, and the lock is held until it has ended.

If the lock is lost, COMMAND and everything that it started get TERM and then
KILL, before somebody else can hold the lock; the exit code is then 76 whatever
COMMAND ended with. The same happens when pgmutex itself is killed or stopped. The
lock itself is free again --stale after the last heartbeat then, and nobody can
have it before (advisory: at once, or after --stale if the host is gone).

` + exitCodes,
		Example: `  pgmutex run nightly-report -- ./report --all
  pgmutex run -n -q -E 0 cleanup -- ./cleanup          (cron: skip in silence while it runs elsewhere)
  pgmutex run -w 5m --stale 1m leader -- ./serve`,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveDefault // a command and its files
			}
			return a.heldNames(cmd, args, begun)
		},
		Args: func(_ *cobra.Command, args []string) error { return r.arguments(args) },
		RunE: func(cmd *cobra.Command, _ []string) error { return r.run(cmd) },
	}
	f := c.Flags()
	f.SetInterspersed(false)
	f.SortFlags = false
	r.wait = duration{to: &r.dWait}
	r.killAfter = duration{to: &r.dKillAfter, least: time.Millisecond}
	r.heartbeat = duration{to: &r.dHeartbeat, least: 1}
	r.alert = duration{to: &r.dAlert, least: 1}
	r.stale = duration{to: &r.dStale, least: 1}
	f.BoolVarP(&r.noWait, "no-wait", "n", false, "do not wait: end with 75 if somebody else holds the lock")
	durationVar(f, &r.wait, "wait", "w", "wait that long at most, in seconds or as 5s, 2m; 0 is no wait")
	f.VarP(code{&r.conflictCode}, "conflict-exit-code", "E", "end with `CODE` instead of 75")
	f.BoolVarP(&r.quiet, "quiet", "q", false, "say nothing about waiting or a busy lock")
	f.BoolVarP(&r.verbose, "verbose", "v", false, "tell when the lock is taken and given back")
	f.StringVar(&r.holder, "holder", "", "`LABEL` by which others see this run (default host-pid-random)")
	durationVar(f, &r.stale, "stale", "", "how long to be silent before others may take the lock (default 10m, --engine advisory 15s)")
	durationVar(f, &r.heartbeat, "heartbeat", "", "time between heartbeats (default 10s, less with a short --stale)")
	durationVar(f, &r.alert, "alert", "", "how long to be silent before others are alerted (default 30s, less with a short --stale)")
	durationVar(f, &r.killAfter, "kill-after", "", "how long COMMAND may take to end when the lock is lost")
	f.Var(code{&r.lostCode}, "lost-exit-code", "end with `CODE` instead of 76")
	f.BoolVar(&r.otel, "otel", false, "send spans and metrics to where the OTEL_ variables say")
	return c
}

// arguments divides what stands after the flags. Only a "--" right before the
// command is ours.
func (r *runner) arguments(args []string) error {
	if len(args) == 0 {
		return usage("LOCK and COMMAND are missing: pgmutex run [flags] LOCK [--] COMMAND [ARG…]")
	}
	r.lock, r.command = args[0], args[1:]
	dashes := len(r.command) > 0 && r.command[0] == "--"
	if dashes {
		r.command = r.command[1:]
	}
	switch {
	case store.LooksSecret(r.lock):
		return usage("a connection string is no lock name: use --url or, better, PGMUTEX_URL")
	case len(r.command) == 0:
		return usage("COMMAND is missing: pgmutex run [flags] LOCK [--] COMMAND [ARG…]")
	case !dashes && strings.HasPrefix(r.command[0], "-"):
		return usage("%s: flags go before the lock name, which is %q here", r.command[0], r.lock)
	}
	return nil
}

func (r *runner) run(cmd *cobra.Command) (err error) {
	// Before anything else, so that no signal finds a lock and nobody to give
	// it back.
	r.signals = supervise.Listen()
	defer r.signals.Stop()

	if r.noWait && r.wait.given && r.dWait > 0 {
		return usage("--no-wait and --wait disagree: choose one")
	}
	if cmd.Flags().Changed("holder") && r.holder == "" {
		return usage("--holder: must not be empty")
	}
	r.noWait = r.noWait || r.wait.given && r.dWait == 0
	r.notes = newNotes(r)
	defer r.notes.stop()
	if err := r.startTelemetry(cmd.Context()); err != nil {
		return err
	}
	defer func() { r.endTelemetry(err) }()
	opts := pgmutex.Options{
		HolderID:   r.holder,
		Heartbeat:  r.dHeartbeat,
		AlertAfter: r.dAlert,
		StaleAfter: r.dStale,
		Hooks:      []pgmutex.Hooks{r.notes.hooks()},
	}
	r.tracing.Instrument(&opts)
	r.store, err = r.open(cmd, opts, r.quiet)
	if err != nil {
		return err
	}
	if err := r.store.Client().CheckName(r.lock); err != nil {
		return usage("LOCK: %w", err)
	}
	if !r.quiet {
		r.warnPath(r.lock)
	}
	path, err := supervise.LookPath(r.command[0])
	if err != nil {
		return r.cannotStart(err)
	}
	hold, err := r.take(r.tracing.Context(cmd.Context()))
	if err != nil {
		return err
	}
	return r.under(hold, path)
}

// under runs the command under the hold and gives the lock back.
func (r *runner) under(hold *pgmutex.Hold, path string) error {
	info := hold.Info()
	if r.verbose {
		if info.Token == 0 { // advisory locks without a table
			r.say("holding %q", r.lock)
		} else {
			r.say("holding %q, token %d", r.lock, info.Token)
		}
	}
	r.notes.hold.Store(hold)
	watch := newLossWatch(r.store.Client(), r.lock, hold)
	result, err := supervise.Run(hold,
		supervise.Command{Path: path, Args: r.command, Env: r.tracing.Environ(environment(os.Environ(), info, r.flags.full(r.lock)))},
		supervise.Options{
			Signals: r.signals,
			Timing:  supervise.Timing{Rest: hold.StaleAt().Sub(hold.Deadline()), KillAfter: r.dKillAfter},
			Lost: func() (hurry bool) {
				go r.notes.tellLoss(hold, nil)
				return watch.lost()
			},
			Hurry: watch.hurry,
			Unguarded: func(err error) {
				if !r.quiet {
					r.say("there is no watchdog (%v): nothing ends the command if pgmutex itself is killed or stopped", err)
				}
			},
		})
	watch.end()
	released := r.release(hold, result.Lost)
	switch {
	case result.Lost || errors.Is(released, pgmutex.ErrLost):
		r.notes.tellLoss(hold, released)
		closeStore(r.store)
		return exitcode.Silent(r.lostCode)
	case released != nil:
		r.say("%s", plainError(released))
	case r.verbose:
		r.say("gave %q back", r.lock)
	}
	closeStore(r.store)
	switch {
	case err != nil:
		return r.cannotStart(err)
	case result.Signal != 0:
		err := &exitcode.Error{Code: 128 + int(result.Signal)}
		if result.OnTerminal {
			err.Signal = int(result.Signal)
		}
		return err
	}
	return exitcode.Silent(result.Code)
}

// release gives the lock back. What is left in the store of a hold that was lost
// is removed too, but that goes stale soon anyway and is not worth a long wait.
func (r *runner) release(hold *pgmutex.Hold, lost bool) error {
	if !lost {
		return hold.Release(context.Background())
	}
	within(closing, func() { _ = hold.Release(context.Background()) })
	return nil
}

// cannotStart says why a command could not be started, as shells do.
func (r *runner) cannotStart(err error) error {
	code, why := exitcode.NotExecutable, err.Error()
	switch {
	case errors.Is(err, fs.ErrNotExist) && !strings.Contains(r.command[0], "/"):
		code, why = exitcode.NotFound, "command not found"
	case errors.Is(err, fs.ErrNotExist):
		code, why = exitcode.NotFound, "no such file"
	case errors.Is(err, fs.ErrPermission):
		why = "cannot be executed"
	case errors.Is(err, syscall.ENOEXEC):
		why = "cannot be executed: it is no program, and a script needs a first line such as #!/bin/sh"
	}
	return &exitcode.Error{Code: code, Err: fmt.Errorf("%s: %s", r.command[0], why)}
}

// program is what others are shown as the program that holds the lock.
func (r *runner) program() string { return strings.ToValidUTF8(filepath.Base(r.command[0]), "?") }
