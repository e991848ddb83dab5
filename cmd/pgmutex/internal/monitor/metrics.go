package monitor

import (
	"regexp"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/pgmutex/pgmutex"
)

// metrics are what a monitor counts, and the store as it last saw it.
type metrics struct {
	registry *prometheus.Registry

	looks    *prometheus.CounterVec
	took     prometheus.Histogram
	alerts   *prometheus.CounterVec
	sends    *prometheus.CounterVec
	active   prometheus.Gauge
	lastLook prometheus.Gauge
}

func newMetrics(m *Monitor) *metrics {
	c := &metrics{
		registry: prometheus.NewRegistry(),
		looks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pgmutex_monitor_looks_total", Help: "Looks at the store, by outcome: ok, failed."}, []string{"outcome"}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "pgmutex_monitor_look_seconds", Help: "Time that looking at the store took.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}}),
		alerts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pgmutex_monitor_alerts_total", Help: "What this monitor told, by event: fired, cleared."}, []string{"event"}),
		sends: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pgmutex_monitor_notifications_total",
			Help: "Messages to receivers, by receiver and outcome: delivered, failed."}, []string{"to", "outcome"}),
		active: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "pgmutex_monitor_active", Help: "1 if this monitor is the one that tells alerts."}),
		lastLook: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "pgmutex_monitor_last_success_timestamp_seconds",
			Help: "When the store was last looked at with success, by the clock of the monitor; 0 for never."}),
	}
	// What rules ask for begins at zero.
	for _, outcome := range []string{"ok", "failed"} {
		c.looks.WithLabelValues(outcome)
	}
	for _, event := range []string{Fired, Cleared} {
		c.alerts.WithLabelValues(event)
	}
	for _, s := range m.cfg.Sinks {
		for _, outcome := range []string{"delivered", "failed"} {
			c.sends.WithLabelValues(s.Name(), outcome)
		}
	}
	fleet := newFleet(m.cfg.LockNames, m.cfg.MaxLocks)
	c.registry.MustRegister(c.looks, c.took, c.alerts, c.sends, c.active, c.lastLook, fleet,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "pgmutex_monitor_alerts_standing", Help: "Holds that are silent for longer than they may be, as this monitor sees it.",
		}, func() float64 { return float64(m.standing()) }),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.fleet = fleet
	return c
}

func (c *metrics) looked(took time.Duration, err error) {
	outcome := "ok"
	if err != nil {
		outcome = "failed"
	} else {
		c.lastLook.SetToCurrentTime()
	}
	c.looks.WithLabelValues(outcome).Inc()
	c.took.Observe(took.Seconds())
}

func (c *metrics) told(event string) { c.alerts.WithLabelValues(event).Inc() }

func (c *metrics) sent(to string, err error) {
	outcome := "delivered"
	if err != nil {
		outcome = "failed"
	}
	c.sends.WithLabelValues(to, outcome).Inc()
}

// A fleet is the store as it was last seen. Without names as labels there is one
// series of each metric, and one for each state of holds.
type fleet struct {
	allowed *regexp.Regexp
	most    int
	byLock  bool

	holds, age, held, waiters *prometheus.Desc

	mu    sync.Mutex
	names map[string]bool // that are labels
	rows  map[string]*row // by label
	seen  bool
}

// A row is what one label's holds add up to.
type row struct {
	states    map[pgmutex.State]int
	age, held time.Duration
	waiters   int
}

func newFleet(allowed *regexp.Regexp, most int) *fleet {
	var lock []string
	if allowed != nil {
		lock = []string{"lock"}
	}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("pgmutex_fleet_"+name, help, append(labels, lock...), nil)
	}
	return &fleet{
		allowed: allowed, most: most, byLock: allowed != nil, names: map[string]bool{},
		holds:   desc("locks_held", "Locks that are held in the store, by state: held, late, stale.", "state"),
		age:     desc("heartbeat_age_seconds", "Age of the oldest heartbeat, by the clock of the store's server."),
		held:    desc("held_seconds", "Time since the longest hold began, by the clock of the monitor."),
		waiters: desc("waiters", "Processes that wait for a lock."),
	}
}

// saw takes what the store showed.
func (f *fleet) saw(now time.Time, held []pgmutex.Status) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = true
	f.rows = map[string]*row{}
	if !f.byLock {
		f.rows[""] = &row{states: map[pgmutex.State]int{}} // shown even if nothing is held
	}
	for _, s := range held {
		label := f.label(s.Name)
		r := f.rows[label]
		if r == nil {
			r = &row{states: map[pgmutex.State]int{}}
			f.rows[label] = r
		}
		r.states[s.State]++
		r.age = max(r.age, s.HeartbeatAge)
		r.held = max(r.held, now.Sub(s.Since), s.HeartbeatAge)
		r.waiters += s.Waiters
	}
}

// label returns the label of a name, which never changes.
func (f *fleet) label(name string) string {
	switch {
	case !f.byLock:
		return ""
	case f.names[name]:
	case len(f.names) >= f.most || !f.allowed.MatchString(name):
		return "_other"
	default:
		f.names[name] = true
	}
	return name
}

// Describe implements prometheus.Collector.
func (f *fleet) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{f.holds, f.age, f.held, f.waiters} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. Before the first look there is nothing:
// no lock held is not what that means.
func (f *fleet) Collect(ch chan<- prometheus.Metric) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.seen {
		return
	}
	for label, r := range f.rows {
		var lock []string
		if f.byLock {
			lock = []string{label}
		}
		for _, state := range []pgmutex.State{pgmutex.StateHeld, pgmutex.StateLate, pgmutex.StateStale} {
			ch <- prometheus.MustNewConstMetric(f.holds, prometheus.GaugeValue, float64(r.states[state]), append([]string{string(state)}, lock...)...)
		}
		for _, v := range []struct {
			desc  *prometheus.Desc
			value float64
		}{{f.age, r.age.Seconds()}, {f.held, r.held.Seconds()}, {f.waiters, float64(r.waiters)}} {
			ch <- prometheus.MustNewConstMetric(v.desc, prometheus.GaugeValue, v.value, lock...)
		}
	}
}
