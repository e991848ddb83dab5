package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/store"
	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/supervise"
)

// settings are the flags that all commands have.
type settings struct {
	store.Flags
	namespace string
}

func (s *settings) add(f *pflag.FlagSet) {
	f.StringVar(&s.URL, "url", "", "PostgreSQL `URL` or key=value string; better set PGMUTEX_URL if it has a password")
	f.Var((*localFile)(&s.Local), "local", "keep locks in a file of this machine instead; `[=PATH]` names it, with the equals sign")
	f.Lookup("local").NoOptDefVal = defaultFile
	f.StringVar(&s.Engine, "engine", store.Lease, "`lease` or advisory")
	f.StringVar(&s.Table, "table", "", "lock table, `[SCHEMA.]NAME` (default public.mutex_lock)")
	f.StringVar(&s.namespace, "namespace", "", "`NAME` that stands before every lock name, as NAME/LOCK")
}

// full is a lock's name in the store.
func (s *settings) full(name string) string {
	if s.namespace == "" {
		return name
	}
	return s.namespace + "/" + name
}

// defaultFile is the value of --local without one. A file of that name is
// "./true".
const defaultFile = "true"

// localFile is the value of --local: a path or nothing, which flags of type bool
// may have.
type localFile string

func (l *localFile) Set(text string) error {
	if text == "" {
		return errors.New("must not be empty")
	}
	*l = localFile(text)
	return nil
}

func (l *localFile) String() string { return string(*l) }

// Type is what keeps help from showing the value that stands for none.
func (l *localFile) Type() string { return "bool" }

// open opens the store that flags and environment choose, without connecting.
func (a *app) open(cmd *cobra.Command, opts pgmutex.Options, quiet bool) (*store.Store, error) {
	f := a.flags.Flags
	for name, set := range map[string]*bool{"url": &f.URLSet, "local": &f.LocalSet, "engine": &f.EngineSet, "table": &f.TableSet} {
		*set = cmd.Flags().Changed(name)
	}
	if f.Local == defaultFile {
		f.Local = ""
	}
	choice, err := store.Choose(f, os.Getenv, supervise.IsTerminal(2))
	if err != nil {
		return nil, err
	}
	opts.Namespace = a.flags.namespace
	if cmd.Flags().Changed("namespace") && opts.Namespace == "" {
		return nil, usage("--namespace: must not be empty")
	}
	s, err := store.Open(cmd.Context(), choice, opts)
	if err != nil || quiet {
		return s, err
	}
	if choice.Guessed {
		a.say("no store is chosen, so this locks on this machine only (--local); see --url")
	}
	if choice.PasswordShown {
		a.say("the password in --url can be read by every user of this host: use PGMUTEX_URL, PGPASSWORD or a password file")
	}
	return s, nil
}

// warnPath warns of a file that was meant for --local and became the lock's name.
func (a *app) warnPath(name string) {
	if a.flags.Local == defaultFile && (strings.HasPrefix(name, "/") || strings.HasPrefix(name, "./")) {
		a.say("%q is taken as the name of the lock: to choose the file of the local store, write --local=PATH", name)
	}
}

// closing bounds what is left to do when a command has what it came for: with a
// store that does not answer, nothing more can be done for it.
const closing = time.Second

func closeStore(s *store.Store) {
	within(closing, func() {
		ctx, cancel := context.WithTimeout(context.Background(), closing)
		defer cancel()
		_ = s.Client().Close(ctx) // nothing is held any more
	})
}

// within calls f and returns when that has, or after d. The program ends soon
// after.
func within(d time.Duration, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// duration is the value of a flag: "5" for seconds, or as Go writes durations.
type duration struct {
	to    *time.Duration
	least time.Duration // what is allowed; zero is only if this is
	given bool
}

func durationVar(f *pflag.FlagSet, d *duration, name, short, help string) {
	f.VarP(d, name, short, help)
}

func (d *duration) Set(text string) error {
	v, err := parseDuration(text)
	switch {
	case err != nil:
		return err
	case v < 0:
		return fmt.Errorf("must not be negative")
	case v < d.least && v == 0:
		return fmt.Errorf("must not be zero")
	case v < d.least:
		return fmt.Errorf("must be at least %s", d.least)
	}
	*d.to, d.given = v, true
	return nil
}

func (d *duration) String() string {
	if d.to == nil || *d.to == 0 {
		return ""
	}
	return d.to.String()
}

// Type is what help shows.
func (d *duration) Type() string { return "DURATION" }

func parseDuration(text string) (time.Duration, error) {
	if seconds, err := strconv.ParseFloat(text, 64); err == nil && strings.IndexFunc(text, notInNumber) < 0 {
		if nanos := seconds * float64(time.Second); math.Abs(nanos) < math.MaxInt64 {
			return time.Duration(nanos), nil
		}
	} else if v, err := time.ParseDuration(text); err == nil {
		return v, nil
	}
	return 0, fmt.Errorf("must be a duration, such as 5, 5s or 2m")
}

func notInNumber(r rune) bool { return !strings.ContainsRune("+-.0123456789", r) }

// code is the value of a flag: an exit code.
type code struct{ to *int }

func (c code) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > 255 {
		return fmt.Errorf("must be a number from 0 to 255")
	}
	*c.to = n
	return nil
}

func (c code) String() string {
	if c.to == nil {
		return ""
	}
	return strconv.Itoa(*c.to)
}

// Type is what help shows.
func (c code) Type() string { return "CODE" }

// script returns the SQL of the set-up. It needs no store to be chosen.
func (s *settings) script(role, purpose string) (string, error) {
	return store.Choice{Table: s.Table}.SQL(role, purpose)
}
