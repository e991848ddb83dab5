//go:build bench

package bench

import (
	"context"
	"errors"
	"strings"
	"time"
)

// A contestant is a way to lock, with its settings.
type contestant struct {
	name  string
	how   string        // settings that matter
	store store         // where its locks are
	poll  time.Duration // how often a waiter asks; 0: it is woken
	most  int           // locks held or awaited at a time; 0: as many as wanted
	in    []string      // the rows that it takes part in
	open  func(ctx context.Context, s stores, heartbeat time.Duration) (party, error)
}

// A party is what one process has of a contestant. lock waits; try returns
// errBusy. Either may be nil.
type party struct {
	lock, try func(ctx context.Context, name string) (hold, error)
	close     func()
}

// A hold is one acquisition; renew is nil where the library does it by itself.
type hold struct {
	unlock, renew func(ctx context.Context) error
}

var errBusy = errors.New("busy")

// A store is a server, or none.
type store string

const (
	postgres    store = "PostgreSQL"
	redisMemory store = "Redis, nothing synced"
	redisSynced store = "Redis, every write synced"
	etcdServer  store = "etcd"
	file        store = "a file"
	none        store = "memory"
)

// stores are the addresses by which a process reaches them.
type stores map[store]string

// contestants are all that takes part, the limit first.
func contestants() []contestant {
	var all []contestant
	for _, some := range [][]contestant{ours(), postgresPeers(), redisPeers(), etcdPeers()} {
		all = append(all, some...)
	}
	return all
}

// key is a name of its own for each contestant: some have the same locks.
func (c contestant) key(name string) string {
	return name + "-" + strings.NewReplacer(" ", "", ",", "").Replace(c.name)
}

func find(name string) contestant {
	for _, c := range contestants() {
		if c.name == name {
			return c
		}
	}
	panic("no contestant " + name)
}

// Groups of rows that most contestants take part in.
var (
	cycling = []string{"cycle-1", "cycle-16", "cycle-64", "cycle-256"}
	waiting = []string{"handover", "waiters"}
)

func in(groups ...[]string) []string {
	var all []string
	for _, g := range groups {
		all = append(all, g...)
	}
	return all
}
