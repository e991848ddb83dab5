package prometheus

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pgmutex/pgmutex"
)

// A Collector turns the events of clients into metrics. It is a
// prometheus.Collector, and registers itself nowhere. Its methods may be called
// concurrently.
type Collector struct {
	opts    Options
	metrics *metrics

	mu        sync.Mutex
	names     map[string]bool     // that are labels
	announced map[[2]string]bool  // engine and lock
	holds     map[string][]string // by term: the labels it was counted under
	alerts    map[subject][]string
}

// A subject is what an alert is about: a term of our own, or whoever else holds
// a name.
type subject struct {
	term, client, name string
}

// New returns a collector without any client. An option that is wrong is named
// in the error.
func New(opts *Options) (*Collector, error) {
	o, err := opts.check()
	if err != nil {
		return nil, err
	}
	c := &Collector{
		opts:      o,
		metrics:   newMetrics(o.ConstLabels, o.LockNames != nil),
		names:     map[string]bool{},
		announced: map[[2]string]bool{},
		holds:     map[string][]string{},
		alerts:    map[subject][]string{},
	}
	// Every registry would refuse it; here the mistake has a name.
	if err := prometheus.NewRegistry().Register(c); err != nil {
		return nil, fmt.Errorf("pgmutex/prometheus: ConstLabels: %w", err)
	}
	return c, nil
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, v := range c.metrics.all() {
		v.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	for _, v := range c.metrics.all() {
		v.Collect(ch)
	}
}

// Hooks returns the hooks to put into pgmutex.Options. One collector may serve
// any number of clients; their numbers add up. The hooks never block.
func (c *Collector) Hooks() pgmutex.Hooks {
	m := c.metrics
	return pgmutex.Hooks{
		Acquired: c.hook(func(e pgmutex.Event, labels []string) {
			c.acquisition(e, labels, acquired)
			c.took(e.Info.Term, labels)
		}),
		Failed: c.hook(func(e pgmutex.Event, labels []string) {
			c.acquisition(e, labels, outcome(e.Err))
		}),
		TakenOver: c.hook(func(_ pgmutex.Event, labels []string) {
			m.takeovers.WithLabelValues(labels...).Inc()
		}),
		Contended: c.hook(func(_ pgmutex.Event, labels []string) {
			m.contentions.WithLabelValues(labels...).Inc()
		}),
		Waiting: c.hook(func(pgmutex.Event, []string) {}),
		Heartbeat: c.hook(func(e pgmutex.Event, _ []string) {
			how := ok
			if e.Err != nil {
				how = failed
			}
			m.beats.WithLabelValues(e.Info.Engine, how).Observe(e.Took.Seconds())
			m.margin.WithLabelValues(e.Info.Engine).Observe(max(e.Margin, 0).Seconds())
		}),
		Alert: c.hook(func(e pgmutex.Event, labels []string) {
			s := about(e)
			labels = append(labels, s.holder())
			m.alerts.WithLabelValues(labels...).Inc()
			if _, stands := c.alerts[s]; !stands {
				c.alerts[s] = labels
				m.standing.WithLabelValues(labels...).Inc()
			}
		}),
		AlertCleared: c.hook(func(e pgmutex.Event, _ []string) {
			c.clear(about(e))
		}),
		Released: c.hook(func(e pgmutex.Event, labels []string) {
			m.hold.WithLabelValues(append(labels, released)...).Observe(e.Took.Seconds())
			c.gone(e.Info.Term)
		}),
		ReleaseUnconfirmed: c.hook(func(e pgmutex.Event, labels []string) {
			m.unconfirmed.WithLabelValues(labels...).Inc()
			c.gone(e.Info.Term) // whatever the store thinks, we do not hold it
		}),
		Lost: c.hook(func(e pgmutex.Event, labels []string) {
			m.losses.WithLabelValues(append(slices.Clone(labels), reason(e.Reason))...).Inc()
			m.hold.WithLabelValues(append(labels, lost)...).Observe(e.Took.Seconds())
			c.gone(e.Info.Term)
		}),
	}
}

// hook makes a hook of a function that is given the labels engine and, where
// there is one, lock, in a slice of its own, and runs with mu held.
func (c *Collector) hook(fn func(e pgmutex.Event, labels []string)) func(context.Context, pgmutex.Event) {
	return func(_ context.Context, e pgmutex.Event) {
		c.mu.Lock()
		defer c.mu.Unlock()
		engine, lock := e.Info.Engine, c.lock(e.Info.Name)
		key := [2]string{engine}
		copy(key[1:], lock)
		if !c.announced[key] {
			c.announced[key] = true
			c.metrics.announce(engine, lock)
		}
		if e.Dropped > 0 {
			c.metrics.dropped.WithLabelValues(engine).Add(float64(e.Dropped))
		}
		fn(e, append([]string{engine}, lock...))
	}
}

// lock returns the value of the label lock, in a slice that is empty without
// that label. A name's value never changes.
func (c *Collector) lock(name string) []string {
	switch {
	case c.opts.LockNames == nil:
		return nil
	case c.names[name]:
	case len(c.names) >= c.opts.MaxLocks || !c.opts.LockNames.MatchString(name):
		name = "_other"
	default:
		c.names[name] = true
	}
	return []string{name}
}

func (c *Collector) acquisition(e pgmutex.Event, labels []string, outcome string) {
	labels = append(slices.Clone(labels), outcome)
	c.metrics.acquisitions.WithLabelValues(labels...).Inc()
	c.metrics.wait.WithLabelValues(labels...).Observe(max(e.Took, 0).Seconds())
}

// took and gone keep the gauge by terms, so that two events about the end of
// one hold count once.
func (c *Collector) took(term string, labels []string) {
	if _, counted := c.holds[term]; !counted {
		c.holds[term] = labels
		c.metrics.held.WithLabelValues(labels...).Inc()
	}
}

func (c *Collector) gone(term string) {
	if labels, counted := c.holds[term]; counted {
		delete(c.holds, term)
		c.metrics.held.WithLabelValues(labels...).Dec()
	}
	c.clear(subject{term: term})
}

// clear ends an alert, if it stands.
func (c *Collector) clear(s subject) {
	if labels, stands := c.alerts[s]; stands {
		delete(c.alerts, s)
		c.metrics.standing.WithLabelValues(labels...).Dec()
	}
}

func about(e pgmutex.Event) subject {
	if e.Info.Term != "" {
		return subject{term: e.Info.Term}
	}
	return subject{client: e.Info.Holder, name: e.Info.Name}
}

func (s subject) holder() string {
	if s.term != "" {
		return own
	}
	return other
}

// outcome names what became of a failed acquisition. The first of the cases
// that fits is the one to act upon.
func outcome(err error) string {
	var ae *pgmutex.AcquireError
	switch {
	case errors.Is(err, pgmutex.ErrClosed):
		return closed
	case errors.Is(err, pgmutex.ErrUnknown):
		return unknown
	case errors.Is(err, fs.ErrPermission), errors.Is(err, errors.ErrUnsupported):
		return refused
	case errors.As(err, &ae) && ae.Timeout > 0, errors.Is(err, context.DeadlineExceeded):
		return timeout
	case errors.Is(err, context.Canceled):
		return cancelled
	case errors.Is(err, pgmutex.ErrHeld):
		return held
	}
	return failure
}

// reason keeps what a foreign engine may say from becoming any number of series.
func reason(r pgmutex.LossReason) string {
	if slices.Contains(reasons, r) {
		return string(r)
	}
	return "other"
}
