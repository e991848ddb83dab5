package prometheus

import (
	"errors"
	"fmt"
	"maps"
	"regexp"

	"github.com/prometheus/client_golang/prometheus"
)

// Options are the options of New. A nil *Options is fine, and a zero field means
// its default. They are copied.
type Options struct {
	// ConstLabels are added to every metric. They must not have the name of a
	// label of ours.
	ConstLabels prometheus.Labels

	// LockNames turns on the label "lock", for the names that it matches;
	// anchor it to match whole names. All others are counted as "_other".
	// Names are given as the program uses them, without the namespace.
	// Default: no such label. Each name costs some 100 series.
	LockNames *regexp.Regexp

	// MaxLocks is how many names may become labels, first come, first served;
	// the rest are counted as "_other". It needs LockNames. Default: 200.
	MaxLocks int
}

const defaultMaxLocks = 200

// check returns the options with their defaults.
func (o *Options) check() (Options, error) {
	if o == nil {
		return Options{}, nil
	}
	c := *o
	c.ConstLabels = maps.Clone(o.ConstLabels)
	switch {
	case c.MaxLocks < 0:
		return c, fmt.Errorf("pgmutex/prometheus: MaxLocks: %d is negative", c.MaxLocks)
	case c.MaxLocks > 0 && c.LockNames == nil:
		return c, errors.New("pgmutex/prometheus: MaxLocks: is without effect without LockNames")
	case c.MaxLocks == 0:
		c.MaxLocks = defaultMaxLocks
	}
	return c, nil
}
