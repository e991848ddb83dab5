// Package otel makes OpenTelemetry spans and metrics of what pgmutex clients do.
// It needs the API only; the program brings the SDK.
//
// An [Instrumentation] has two parts, which both go into pgmutex.Options: Hooks,
// and Annotate, which shows the trace of a holder to those who wait for it.
//
// # Spans
//
//	pgmutex.lock.acquire   an acquisition, from asking to the outcome
//	pgmutex.lock.try       the same of one that does not wait for another holder
//	pgmutex.lock.release   the giving back of a lock
//
// They are children of the span under which the lock was asked for, and made
// after the fact, from the times that the client took, so that tracing is never
// on the path of a lock. Polls and heartbeats have none: they are metrics.
//
// A span of somebody who found the lock held links to the span under which the
// holder had asked for it, as the store shows it. The link is found by name and
// parent span: acquisitions of one name side by side under one span share theirs.
// A loss is an event, pgmutex.lock.lost, of the span under which the lock was
// asked for, if that has not ended.
//
// The attributes keep the meanings of the eventsource locks:
//
//	pgmutex.lock.key         the name of the lock
//	pgmutex.lock.id          its 63-bit id
//	pgmutex.lock.engine      lease, advisory, …
//	pgmutex.lock.holder      the label of this client, in a link: of that holder
//	pgmutex.lock.acquired    whether it was acquired
//	pgmutex.lock.outcome     acquired, held, timeout, cancelled, unknown, closed,
//	                         refused or error; of a release: released, unconfirmed
//	pgmutex.lock.timeout     AcquireOptions.Wait in seconds, -1 for no limit; not of a try
//	pgmutex.lock.wait_time   seconds from asking to the outcome
//	pgmutex.lock.token       fencing token, where there is one
//	pgmutex.lock.shared      true for a read lock
//	pgmutex.lock.taken_over  label of the stale holder that was replaced
//	pgmutex.lock.hold_time   seconds that the lock was held, of a release
//
// A status of Error is for what somebody should look into: timeout, unknown,
// refused, error and unconfirmed. A lock that was busy, a wait that was cancelled
// and a client that was closed are none.
//
// # Metrics
//
//	pgmutex.lock.acquisitions          by outcome
//	pgmutex.lock.acquire.duration      s, by outcome
//	pgmutex.lock.contentions
//	pgmutex.lock.held                  locks that are held now
//	pgmutex.lock.hold.duration         s, by end: released, lost
//	pgmutex.lock.losses                by reason
//	pgmutex.lock.takeovers
//	pgmutex.lock.alerts                by subject: own, other
//	pgmutex.lock.alerts.standing       by subject
//	pgmutex.lock.releases.unconfirmed
//	pgmutex.lock.heartbeat.duration    s, by outcome: ok, failed
//	pgmutex.lock.heartbeat.margin      s, trust left when it was answered
//	pgmutex.events.dropped             hook events that did not get here
//
// All have the attribute pgmutex.lock.engine; none has the name of a lock.
package otel
