package advisory

import (
	"fmt"

	"github.com/pgmutex/pgmutex/internal/schema"
)

// Options are the settings of the advisory engine itself. Those that every
// engine understands are in pgmutex.Options. Nil and the zero value mean the
// defaults.
type Options struct {
	// DirectSession vouches for the connection: whatever stands between this
	// process and the server, all statements of one connection reach one and the
	// same session of the server for as long as the connection lasts. That is so
	// without a pooler and with one in session mode. It is asked for where it
	// cannot be seen. Behind a transaction pooler it is not true, and the locks
	// would be worth nothing.
	DirectSession bool

	// PollOnly never listens for notifications; waiters poll. Waiters elsewhere
	// are still woken up.
	PollOnly bool

	// Table gives each grant a fencing token from the sequence that belongs to
	// this lock table of the lease engine, "[schema.]table"; lease.Migrate makes
	// both. Empty means no tokens. Opening verifies it.
	Table string
}

// settings are options that were checked and completed.
type settings struct {
	vouched  bool
	pollOnly bool
	tokens   bool
	names    schema.Names // with tokens
}

func (o *Options) settings() (settings, error) {
	if o == nil {
		o = &Options{}
	}
	s := settings{vouched: o.DirectSession, pollOnly: o.PollOnly, tokens: o.Table != ""}
	if s.tokens {
		names, err := schema.Parse(o.Table)
		if err != nil {
			return settings{}, fmt.Errorf("advisory.Options.Table: %w", err)
		}
		s.names = names
	}
	return s, nil
}

// draw is the expression that makes a token, as text.
func (s settings) draw() string {
	if !s.tokens {
		return "'0'"
	}
	return s.names.Replacer().Replace("pg_catalog.nextval({{token:literal}}::pg_catalog.regclass)::text")
}
