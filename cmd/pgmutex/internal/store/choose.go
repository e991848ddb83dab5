// Package store decides which store a command works on, and opens it.
package store

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/exitcode"
)

// Flags are what the command line says about the store. The Set fields tell an
// absent flag from an empty one.
type Flags struct {
	URL       string
	URLSet    bool
	Local     string // a path, empty for the default one
	LocalSet  bool
	Engine    string
	EngineSet bool
	Table     string
	TableSet  bool
}

// The engines that --engine knows.
const (
	Lease    = "lease"
	Advisory = "advisory"
)

// A Choice is a store.
type Choice struct {
	Local  bool
	Path   string // of the local store, empty for the default one
	URL    string // connection string, empty for libpq's environment
	Engine string
	Table  string

	// From says what chose it: a flag or a variable.
	From string

	// Guessed is set when nothing chose it.
	Guessed bool

	// PasswordShown is set when a password stood on the command line, where
	// every user of the host can read it.
	PasswordShown bool
}

// choosing are the variables of libpq that say where a server is. PGUSER or a
// password file alone choose nothing.
var choosing = []string{"PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE", "PGSERVICE"}

const variable = "PGMUTEX_URL"

// Choose decides from flags and environment. A flag beats the environment, and
// flags that disagree are a usage error. When nothing chooses, a person at a
// terminal gets the local store, and a program gets an error: a job that lost
// its environment must not lock something else than the other jobs do.
func Choose(f Flags, getenv func(string) string, terminal bool) (Choice, error) {
	c := Choice{Engine: Lease, Table: f.Table}
	if f.EngineSet {
		if f.Engine != Lease && f.Engine != Advisory {
			return c, usage("--engine: must be %s or %s", Lease, Advisory)
		}
		c.Engine = f.Engine
	}
	if f.URLSet && f.URL == "" {
		return c, usage("--url: must not be empty")
	}
	if f.LocalSet {
		for _, other := range []struct {
			set  bool
			flag string
		}{{f.URLSet, "--url"}, {f.EngineSet, "--engine"}, {f.TableSet, "--table"}} {
			if other.set {
				return c, usage("--local and %s disagree: choose one", other.flag)
			}
		}
		c.Local, c.Path, c.From = true, f.Local, "--local"
		return c, nil
	}
	switch set := getenv(variable); {
	case f.URLSet:
		c.URL, c.From = f.URL, "--url"
		c.PasswordShown = hasPassword(f.URL)
	case set != "":
		c.URL, c.From = set, variable
	default:
		i := slices.IndexFunc(choosing, func(name string) bool { return getenv(name) != "" })
		switch {
		case i >= 0:
			c.From = choosing[i]
		case f.EngineSet || f.TableSet:
			return c, notConfigured()
		case terminal:
			c.Local, c.Guessed = true, true
		default:
			return c, notConfigured()
		}
		return c, nil
	}
	if path, ok := strings.CutPrefix(c.URL, "local:"); ok {
		if f.EngineSet || f.TableSet {
			return c, usage("%s names the local store, which has neither --engine nor --table", c.From)
		}
		c.Local, c.Path, c.URL = true, path, ""
	}
	return c, nil
}

func usage(format string, args ...any) error {
	return &exitcode.Error{Code: exitcode.Usage, Err: fmt.Errorf(format, args...)}
}

func notConfigured() error {
	return &exitcode.Error{Code: exitcode.NotConfigured, Err: errors.New("no store is chosen: " +
		"give --url or set " + variable + " (or PGHOST, PGDATABASE, …) for PostgreSQL, " +
		"or give --local for the locks of this machine alone")}
}

var passwordWord = regexp.MustCompile(`(?i)(^|[\s?&])(ssl)?password\s*=\s*[^\s&]`)

// hasPassword tells whether a connection string seems to hold a password. It
// would rather be wrong than overlook one.
func hasPassword(s string) bool {
	if passwordWord.MatchString(s) {
		return true
	}
	_, rest, ok := strings.Cut(s, "://")
	if !ok {
		return false
	}
	if u, err := url.Parse(s); err == nil {
		_, has := u.User.Password()
		return has
	}
	user, _, ok := strings.Cut(rest, "@")
	return ok && strings.Contains(user, ":")
}

// LooksSecret tells whether an argument looks like a connection string, which
// is not to be quoted in messages.
func LooksSecret(s string) bool { return strings.Contains(s, "://") || passwordWord.MatchString(s) }
