package monitor

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pgmutex/pgmutex"
)

// A Config is what a Monitor is made of.
type Config struct {
	Client     *pgmutex.Client
	Lock       string        // that the monitors share
	AlertAfter time.Duration // 0: what each holder asks for
	Every      time.Duration
	Sinks      []Sink
	Log        *slog.Logger

	LockNames *regexp.Regexp // that become labels
	MaxLocks  int            // how many
}

const (
	// patience is how long the store may take to be looked at.
	patience = 10 * time.Second
	// least is the time between two looks.
	least = 100 * time.Millisecond
	// together is how many alerts are told at a time.
	together = 8
	// lastWords is how long what is being told may take once the monitor is to stop.
	lastWords = 5 * time.Second

	firedPrefix   = "pgmutex.alert."
	clearedPrefix = "pgmutex.clear."
)

// A Monitor watches one store.
type Monitor struct {
	cfg     Config
	metrics *metrics
	fleet   *fleet
	started time.Time
	wake    chan struct{} // capacity 1: somebody who tells may have something to do

	mu       sync.Mutex
	watch    watch
	lastLook time.Time // that ended, either way
	lastGood time.Time
}

// New returns a monitor that does nothing yet. The error is about the names of its
// locks, which have to fit into the client's namespace.
func New(cfg Config) (*Monitor, error) {
	for _, name := range []string{cfg.Lock, firedPrefix + key{}.id("")} {
		if err := cfg.Client.CheckName(name); err != nil {
			return nil, fmt.Errorf("the name of one of the monitor's locks: %w", err)
		}
	}
	m := &Monitor{
		cfg: cfg, started: time.Now(), wake: make(chan struct{}, 1),
		watch: watch{group: cfg.Lock, alertAfter: cfg.AlertAfter, alerts: map[key]*alert{}},
	}
	m.metrics = newMetrics(m)
	return m, nil
}

// Registry returns the metrics.
func (m *Monitor) Registry() *prometheus.Registry { return m.metrics.registry }

// Run looks and tells until ctx ends, and returns nil then, after what was being
// told has been told. It returns an error where trying again cannot help.
func (m *Monitor) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var looking sync.WaitGroup
	looking.Go(func() { m.keepLooking(ctx) })
	err := m.cfg.Client.Run(ctx, m.cfg.Lock, m.lead, &pgmutex.RunOptions{MaxPause: 5 * time.Second})
	stopped := ctx.Err() != nil
	cancel()
	looking.Wait()
	if stopped {
		return nil
	}
	return err
}

func (m *Monitor) keepLooking(ctx context.Context) {
	for {
		next := m.look(ctx)
		pause := m.cfg.Every
		if next > 0 {
			pause = min(pause, max(next, least))
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// look looks once, and returns when it is worth looking again, or zero.
func (m *Monitor) look(ctx context.Context) time.Duration {
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var held []pgmutex.Status
	var failure error
	for s, err := range m.cfg.Client.List(limited) {
		if err != nil {
			failure = err
			break
		}
		if !m.own(s.Name) {
			held = append(held, s)
		}
	}
	now := time.Now()
	if ctx.Err() != nil {
		return 0
	}
	m.metrics.looked(now.Sub(began), failure)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lastLook = now
	if failure != nil {
		if !m.watch.failing {
			m.cfg.Log.Warn("cannot look at the store, trying again", "error", failure)
		}
		m.watch.failed()
		return 0
	}
	if m.watch.failing {
		m.cfg.Log.Info("the store can be looked at again")
	}
	m.lastGood = now
	m.fleet.saw(now, held)
	next := m.watch.look(now, held)
	select {
	case m.wake <- struct{}{}:
	default:
	}
	return next
}

// own tells the monitors' own locks from those that they watch.
func (m *Monitor) own(name string) bool {
	return name == m.cfg.Lock || strings.HasPrefix(name, firedPrefix) || strings.HasPrefix(name, clearedPrefix)
}

// ready tells whether the store has been looked at lately, and for how long it has
// not been.
func (m *Monitor) ready(now time.Time) (bool, time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := m.lastGood
	if last.IsZero() {
		last = m.started
	}
	age := now.Sub(last)
	return !m.lastGood.IsZero() && !m.watch.failing && age <= 3*m.cfg.Every+patience, age
}

// alive tells whether the loop still turns.
func (m *Monitor) alive(now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := m.lastLook
	if last.IsZero() {
		last = m.started
	}
	return now.Sub(last) <= 3*m.cfg.Every+3*patience
}

func (m *Monitor) standing() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.watch.standing()
}
