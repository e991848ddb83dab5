//go:build bench

package bench

import (
	"context"
	"errors"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

func etcdPeers() []contestant {
	return []contestant{{
		name: "etcd concurrency.Mutex", how: "one node, which syncs every write; a session for each of the locks that a process uses at a time",
		store: etcdServer, in: in(cycling, waiting, []string{"busy", "holds", "held"}), open: etcd,
	}}
}

func etcdClient(addr string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
}

// etcd keeps its sessions and uses them again. Each lock in use needs its own,
// since two goroutines of one session do not exclude each other; but many holds
// of different names share one, as a program with many locks would do.
func etcd(ctx context.Context, s stores, heartbeat time.Duration) (party, error) {
	c, err := etcdClient(s[etcdServer])
	if err != nil {
		return party{}, err
	}
	seconds := 60
	if heartbeat > 0 {
		seconds = int(3 * heartbeat / time.Second) // it renews after a third
	}
	session := func() (*concurrency.Session, error) {
		return concurrency.NewSession(c, concurrency.WithTTL(seconds))
	}
	shared, err := session()
	if err != nil {
		return party{}, errors.Join(err, c.Close())
	}
	var mu sync.Mutex
	idle := []*concurrency.Session{}
	waiters := map[string]int{} // in this process, by name
	lock := func(ctx context.Context, name string) (hold, error) {
		mu.Lock()
		waiters[name]++
		alone, own := waiters[name] == 1, shared
		if !alone {
			own = nil
			if n := len(idle); n > 0 {
				own, idle = idle[n-1], idle[:n-1]
			}
		}
		mu.Unlock()
		done := func() {
			mu.Lock()
			defer mu.Unlock()
			if waiters[name]--; waiters[name] == 0 {
				delete(waiters, name)
			}
			if own != nil && own != shared {
				idle = append(idle, own)
			}
		}
		var err error
		if own == nil {
			own, err = session()
		}
		var m *concurrency.Mutex
		if err == nil {
			m = concurrency.NewMutex(own, name)
			err = m.Lock(ctx)
		}
		if err != nil {
			done()
			return hold{}, err
		}
		return hold{unlock: func(ctx context.Context) error {
			defer done()
			return m.Unlock(ctx)
		}}, nil
	}
	try := func(ctx context.Context, name string) (hold, error) {
		m := concurrency.NewMutex(shared, name)
		err := m.TryLock(ctx)
		if errors.Is(err, concurrency.ErrLocked) {
			err = errBusy
		}
		return hold{unlock: m.Unlock}, err
	}
	return party{lock: lock, try: try, close: func() { c.Close() }}, nil
}
