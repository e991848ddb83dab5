package prometheus

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pgmutex/pgmutex"
)

// Values of the label outcome.
const (
	acquired  = "acquired"
	held      = "held"
	timeout   = "timeout"
	cancelled = "cancelled"
	unknown   = "unknown"
	closed    = "closed"
	refused   = "refused"
	failure   = "error"
)

// Values of the labels end, holder and outcome (of heartbeats).
const (
	released = "released"
	lost     = "lost"
	own      = "own"
	other    = "other"
	ok       = "ok"
	failed   = "failed"
)

// reasons are the values of the label reason.
var reasons = []pgmutex.LossReason{
	pgmutex.LostTakenOver, pgmutex.LostExpired, pgmutex.LostReleased,
	pgmutex.LostSessionEnded, pgmutex.LostReadOnly, pgmutex.LostRowGone,
}

var (
	// A grant takes a millisecond, a wait may take the length of a job.
	waitBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800}
	holdBuckets = []float64{.01, .1, .5, 1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600}
	beatBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 15}
	// Trust is two thirds of StaleAfter: 400 s by default, a second at the least.
	marginBuckets = []float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 240, 300, 350, 375, 390, 400}
)

// metrics are the vectors of a Collector.
type metrics struct {
	acquisitions, contentions, losses, takeovers *prometheus.CounterVec
	alerts, unconfirmed, dropped                 *prometheus.CounterVec
	held, standing                               *prometheus.GaugeVec
	wait, hold, beats, margin                    *prometheus.HistogramVec
}

func newMetrics(constant prometheus.Labels, byLock bool) *metrics {
	labels := func(perLock bool, more ...string) []string {
		all := []string{"engine"}
		if perLock && byLock {
			all = append(all, "lock")
		}
		return append(all, more...)
	}
	counter := func(name, help string, labels []string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "pgmutex", Name: name, Help: help, ConstLabels: constant,
		}, labels)
	}
	gauge := func(name, help string, labels []string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "pgmutex", Name: name, Help: help, ConstLabels: constant,
		}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels []string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "pgmutex", Name: name, Help: help, ConstLabels: constant, Buckets: buckets,
		}, labels)
	}
	return &metrics{
		acquisitions: counter("acquisitions_total", "Acquisitions that ended, by outcome.", labels(true, "outcome")),
		contentions:  counter("contentions_total", "Acquisitions that found the lock held by somebody else.", labels(true)),
		losses:       counter("losses_total", "Holds that ended against their owner's will, by reason.", labels(true, "reason")),
		takeovers:    counter("takeovers_total", "Locks that were granted in place of a stale holder.", labels(true)),
		alerts:       counter("alerts_total", "Holders that fell silent: own are this process's holds.", labels(true, "holder")),
		unconfirmed:  counter("releases_unconfirmed_total", "Releases that were not confirmed in time and went on in the background.", labels(true)),
		dropped:      counter("events_dropped_total", "Hook events that were dropped because a hook was slow.", labels(false)),

		held:     gauge("locks_held", "Locks that this process holds.", labels(true)),
		standing: gauge("alerts_standing", "Holders that fell silent and have not been heard of since, as far as this process saw.", labels(true, "holder")),

		wait:   histogram("acquire_wait_seconds", "Time from asking for a lock to the outcome.", waitBuckets, labels(true, "outcome")),
		hold:   histogram("hold_seconds", "Time that locks were held, by the way it ended.", holdBuckets, labels(true, "end")),
		beats:  histogram("heartbeat_seconds", "Round trips of heartbeats, by outcome.", beatBuckets, labels(false, "outcome")),
		margin: histogram("heartbeat_margin_seconds", "Trust in a hold that was left when its heartbeat was answered, or was not.", marginBuckets, labels(false)),
	}
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{
		m.acquisitions, m.contentions, m.losses, m.takeovers, m.alerts, m.unconfirmed, m.dropped,
		m.held, m.standing, m.wait, m.hold, m.beats, m.margin,
	}
}

// announce makes the series that alerting rules ask for begin at zero: a
// counter that appears with 1 shows no increase.
func (m *metrics) announce(engine string, lock []string) {
	with := func(more ...string) []string { return append(append([]string{engine}, lock...), more...) }
	for _, r := range reasons {
		m.losses.WithLabelValues(with(string(r))...)
	}
	for _, o := range []string{acquired, unknown, failure} {
		m.acquisitions.WithLabelValues(with(o)...)
	}
	for _, h := range []string{own, other} {
		m.alerts.WithLabelValues(with(h)...)
		m.standing.WithLabelValues(with(h)...)
	}
	m.contentions.WithLabelValues(with()...)
	m.takeovers.WithLabelValues(with()...)
	m.unconfirmed.WithLabelValues(with()...)
	m.held.WithLabelValues(with()...)
	m.dropped.WithLabelValues(engine)
}
