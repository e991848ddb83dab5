package otel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/pgmutex/pgmutex"
)

// meters are the instruments.
type meters struct {
	acquisitions, contentions, losses, takeovers, alerts, unconfirmed, dropped metric.Int64Counter
	held, standing                                                             metric.Int64UpDownCounter
	wait, hold, beat, margin                                                   metric.Float64Histogram
}

func newMeters(m metric.Meter) (*meters, error) {
	var errs []error
	counter := func(name, unit, text string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(text))
		errs = append(errs, err)
		return c
	}
	level := func(name, unit, text string) metric.Int64UpDownCounter {
		c, err := m.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(text))
		errs = append(errs, err)
		return c
	}
	seconds := func(name, text string, buckets ...float64) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(text),
			metric.WithExplicitBucketBoundaries(buckets...))
		errs = append(errs, err)
		return h
	}
	all := &meters{
		acquisitions: counter("pgmutex.lock.acquisitions", "{acquisition}", "Acquisitions that ended, by outcome."),
		contentions:  counter("pgmutex.lock.contentions", "{acquisition}", "Acquisitions that found the lock held by somebody else."),
		losses:       counter("pgmutex.lock.losses", "{hold}", "Holds that ended against their owner's will, by reason."),
		takeovers:    counter("pgmutex.lock.takeovers", "{hold}", "Locks that were granted in place of a stale holder."),
		alerts:       counter("pgmutex.lock.alerts", "{alert}", "Holders that fell silent, by subject: own are this process's holds."),
		unconfirmed:  counter("pgmutex.lock.releases.unconfirmed", "{release}", "Releases that were not confirmed in time and went on in the background."),
		dropped:      counter("pgmutex.events.dropped", "{event}", "Hook events that were dropped because a hook was slow."),

		held:     level("pgmutex.lock.held", "{lock}", "Locks that this process holds."),
		standing: level("pgmutex.lock.alerts.standing", "{alert}", "Holders that fell silent and have not been heard of since, as far as this process saw."),

		wait: seconds("pgmutex.lock.acquire.duration", "Time from asking for a lock to the outcome.",
			.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800),
		hold: seconds("pgmutex.lock.hold.duration", "Time that locks were held, by the way it ended.",
			.01, .1, .5, 1, 5, 15, 60, 300, 900, 3600, 4*3600, 24*3600),
		beat: seconds("pgmutex.lock.heartbeat.duration", "Round trips of heartbeats, by outcome.",
			.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 15),
		// Trust is two thirds of StaleAfter: 400 s by default, a second at the least.
		margin: seconds("pgmutex.lock.heartbeat.margin", "Trust in a hold that was left when its heartbeat was answered, or was not.",
			.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 240, 300, 350, 375, 390, 400),
	}
	return all, errors.Join(errs...)
}

// of returns the attributes of a measurement.
func of(e pgmutex.Event, more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributes(append(more, keyEngine.String(e.Info.Engine))...)
}

// took and gone keep the number of holds by terms, so that two events about the
// end of one hold count once.
func (i *Instrumentation) took(ctx context.Context, e pgmutex.Event) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.holds[e.Info.Term] {
		i.holds[e.Info.Term] = true
		i.meters.held.Add(ctx, 1, of(e))
	}
}

func (i *Instrumentation) gone(ctx context.Context, e pgmutex.Event) {
	i.mu.Lock()
	if i.holds[e.Info.Term] {
		delete(i.holds, e.Info.Term)
		i.meters.held.Add(ctx, -1, of(e))
	}
	i.mu.Unlock()
	i.alertCleared(ctx, e)
}

// A subject is what an alert is about: a term of our own, or whoever else holds
// a name.
type subject struct {
	term, client, name string
}

func about(e pgmutex.Event) subject {
	if e.Info.Term != "" {
		return subject{term: e.Info.Term}
	}
	return subject{client: e.Info.Holder, name: e.Info.Name}
}

func (s subject) attribute() attribute.KeyValue {
	if s.term != "" {
		return keySubject.String("own")
	}
	return keySubject.String("other")
}

func (i *Instrumentation) alert(ctx context.Context, e pgmutex.Event) {
	s := about(e)
	i.meters.alerts.Add(ctx, 1, of(e, s.attribute()))
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.alerts[s] {
		i.alerts[s] = true
		i.meters.standing.Add(ctx, 1, of(e, s.attribute()))
	}
}

func (i *Instrumentation) alertCleared(ctx context.Context, e pgmutex.Event) {
	s := about(e)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.alerts[s] {
		delete(i.alerts, s)
		i.meters.standing.Add(ctx, -1, of(e, s.attribute()))
	}
}
