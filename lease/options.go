package lease

import (
	"errors"
	"fmt"
	"time"

	"github.com/pgmutex/pgmutex/internal/schema"
)

// Options are the settings of the lease engine itself. Those that every engine
// understands are in pgmutex.Options. Nil and the zero value mean the defaults.
type Options struct {
	// Table is the lock table, "[schema.]table"; empty means public.mutex_lock.
	// The names of the other tables follow from it. Letters keep their case; a
	// part that contains a dot is written in double quotes. All processes that
	// are to exclude each other name the same table.
	Table string

	// PeerStaleAfter is the stale_threshold of the Python processes that use
	// the same table, zero for their default of 600 s. They do not read what a
	// holder has promised, so no hold is trusted for longer than this allows,
	// and they promise nothing, so this is what their rows get. All of them, and
	// all clients of this package, have to agree on it.
	PeerStaleAfter time.Duration

	// NoPeers says that no such process uses the table. A hold is then trusted
	// for as long as its own StaleAfter allows.
	NoPeers bool

	// PollOnly never listens for notifications; waiters poll.
	PollOnly bool
}

const (
	minStaleAfter = time.Second
	maxStaleAfter = 7 * 24 * time.Hour

	defaultPeerStaleAfter = 600 * time.Second
)

// settings are options that were checked and completed.
type settings struct {
	names          schema.Names
	peerStaleAfter time.Duration
	noPeers        bool
	pollOnly       bool
}

func (o *Options) settings() (settings, error) {
	if o == nil {
		o = &Options{}
	}
	names, err := schema.Parse(o.Table)
	if err != nil {
		return settings{}, fmt.Errorf("lease.Options.Table: %w", err)
	}
	s := settings{names: names, peerStaleAfter: o.PeerStaleAfter, noPeers: o.NoPeers, pollOnly: o.PollOnly}
	switch {
	case o.NoPeers && o.PeerStaleAfter != 0:
		return settings{}, errors.New("lease.Options: PeerStaleAfter and NoPeers contradict each other")
	case o.PeerStaleAfter == 0:
		s.peerStaleAfter = defaultPeerStaleAfter
	case o.PeerStaleAfter < minStaleAfter, o.PeerStaleAfter > maxStaleAfter:
		return settings{}, fmt.Errorf("lease.Options.PeerStaleAfter: %v is not between %v and %v",
			o.PeerStaleAfter, minStaleAfter, maxStaleAfter)
	}
	return s, nil
}
