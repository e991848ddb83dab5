package schema

import (
	"io/fs"
	"strings"
)

// A Problem says why the tables cannot be used, and what to do about it.
type Problem struct { //nolint:errname // it has nothing to do with an Error that pgdb returns
	Table   string   // as configured
	Missing []string // what is not as it must be, each a phrase
	Fix     string   // what to do, a sentence without its full stop

	rights bool
}

func (p *Problem) Error() string {
	return "lock table " + p.Table + ": " + strings.Join(p.Missing, ", ") + ": " + p.Fix
}

// Is makes a problem of missing rights match fs.ErrPermission.
func (p *Problem) Is(target error) bool { return p.rights && target == fs.ErrPermission }
