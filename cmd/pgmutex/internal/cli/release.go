package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/exitcode"
	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/store"
	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/supervise"
)

// releaseJSON tells what became of a release.
type releaseJSON struct {
	Name   string `json:"name"`
	Holder string `json:"holder,omitempty"`
	Term   string `json:"term,omitempty"`
	Result string `json:"result"` // asked, ended, not held, changed hands
}

func (a *app) release() *cobra.Command {
	var force, now, yes, asJSON bool
	var reason string
	c := &cobra.Command{
		Use:   "release LOCK --force",
		Short: "End somebody else's hold",
		Long: `Ask the holder of a lock to stop: at its next heartbeat its work is ended, and the
lock is given back when that is done. With --now the hold is removed at once, and
the next holder may begin beside what is left of the old one's work.

The very hold that is shown is ended: if the lock changes hands meanwhile, nothing
happens to the new holder. On a terminal you are asked before, unless --yes.

Exit codes
    0  the holder was asked to stop, or the hold was ended
    1  nobody holds the lock
   75  the lock has changed hands since it was looked at
   77  the right is missing
   64, 69, 70, 78 as in "pgmutex help"`,
		Example: `  pgmutex release nightly-report --force --reason "host is gone"
  pgmutex release nightly-report --force --now --yes`,
		Args:              oneArg("LOCK", true),
		ValidArgsFunction: a.heldNames,
	}
	f := c.Flags()
	f.BoolVar(&force, "force", false, "yes, this may stop somebody's work")
	f.StringVar(&reason, "reason", "", "`TEXT` for the holder and for the history")
	f.BoolVar(&now, "now", false, "do not wait for the holder to stop")
	f.BoolVar(&yes, "yes", false, "do not ask")
	f.BoolVar(&asJSON, "json", false, "tell the result as a JSON object")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if !force {
			return usage("--force is missing: a lock is given back by its holder; this stops somebody's work")
		}
		s, err := a.open(cmd, pgmutex.Options{}, false)
		if err != nil {
			return err
		}
		defer closeStore(s)
		name := args[0]
		if err := a.checkName(s, name); err != nil {
			return err
		}
		seen, err := s.Client().Inspect(cmd.Context(), name)
		if err != nil {
			return s.Code(err)
		}
		if seen.State == pgmutex.StateFree {
			return a.released(asJSON, seen, "not held", exitcode.NotHeld, fmt.Sprintf("nobody holds %q", name))
		}
		if now {
			others, err := sameSession(cmd.Context(), s, seen)
			if err != nil {
				return s.Code(err)
			}
			if len(others) > 0 {
				a.say("that ends the whole session of %q, which also holds %s", seen.Holder, strings.Join(others, ", "))
			}
		}
		if !yes && supervise.IsTerminal(0) && supervise.IsTerminal(2) && !a.agreed(seen) {
			return exitcode.Silent(exitcode.NotHeld)
		}
		if reason != "" && seen.Details[backend] != "" {
			a.say("--reason is told to nobody: advisory locks have neither a place for it nor a history")
		}
		err = s.Client().ForceRelease(cmd.Context(), seen, &pgmutex.ForceOptions{Reason: reason, Now: now})
		switch {
		case err == nil && now:
			return a.released(asJSON, seen, "ended", exitcode.OK, fmt.Sprintf("ended the hold of %q by %q", name, seen.Holder))
		case err == nil:
			return a.released(asJSON, seen, "asked", exitcode.OK, fmt.Sprintf("asked %q, who holds %q, to stop: it is told within one heartbeat%s; if it does not answer, --now ends the hold without it", seen.Holder, name, beat(seen)))
		case errors.Is(err, pgmutex.ErrNotHeld):
			return a.released(asJSON, seen, "not held", exitcode.NotHeld, fmt.Sprintf("nobody holds %q any more", name))
		case errors.Is(err, pgmutex.ErrHeld):
			return a.released(asJSON, seen, "changed hands", exitcode.Busy, fmt.Sprintf("%q has changed hands since; nothing was done", name))
		case errors.Is(err, fs.ErrPermission):
			return &exitcode.Error{Code: exitcode.NotPermitted, Err: err}
		case errors.Is(err, errors.ErrUnsupported):
			return &exitcode.Error{Code: exitcode.Unavailable, Err: fmt.Errorf("%w; --now ends the hold without its holder", err)}
		}
		return s.Code(err)
	}
	return c
}

// beat says how long a heartbeat is, where the holder has promised that.
func beat(seen pgmutex.Status) string {
	if seen.Heartbeat == 0 {
		return ""
	}
	return " (" + span(seen.Heartbeat) + ")"
}

// sameSession names the other locks that end with the session of an advisory
// lock.
func sameSession(ctx context.Context, s *store.Store, seen pgmutex.Status) ([]string, error) {
	if seen.Details[backend] == "" {
		return nil, nil
	}
	var others []string
	for other, err := range s.Client().List(ctx) {
		if err != nil {
			return nil, err
		}
		if other.Details[backend] == seen.Details[backend] && other.ID != seen.ID {
			others = append(others, shownName(other))
		}
	}
	return others, nil
}

// released tells what became of a release, on standard output as JSON and
// otherwise on standard error.
func (a *app) released(asJSON bool, seen pgmutex.Status, result string, code int, text string) error {
	if asJSON {
		if err := writeJSON(a.out, releaseJSON{Name: seen.Name, Holder: seen.Holder, Term: seen.Term, Result: result}); err != nil {
			return err
		}
	} else {
		a.say("%s", text)
	}
	return exitcode.Silent(code)
}

// agreed asks the person at the terminal.
func (a *app) agreed(seen pgmutex.Status) bool {
	text := fmt.Sprintf("%s is held by %s%s", word(seen.Name), word(seen.Holder), where(seen.Details))
	if seen.Details[backend] == "" {
		text += fmt.Sprintf(" since %s, last heartbeat %s ago", moment(seen.Since), span(seen.HeartbeatAge))
	}
	fmt.Fprintf(a.err, "%s. End that hold? [y/N] ", text)
	answer, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return true
	}
	return false
}
