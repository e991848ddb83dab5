// Package prometheus counts for Prometheus what pgmutex clients do.
//
// A [Collector] is fed by hooks, which go into pgmutex.Options, and registered by
// the program, in a registry of its choice.
//
// # Metrics
//
// All begin with pgmutex_ and carry the label engine. Those marked * can carry
// the label lock as well, see [Options].
//
//	acquisitions_total *          acquisitions that ended, by outcome
//	acquire_wait_seconds *        how long they took, by outcome
//	contentions_total *           acquisitions that found the lock held
//	locks_held *                  locks that are held now
//	hold_seconds *                how long locks were held, by end: released, lost
//	losses_total *                holds that were lost, by reason
//	takeovers_total *             locks that were taken from a stale holder
//	alerts_total *                silent holders, by holder: own, other
//	alerts_standing *             of these, the ones not heard of since
//	releases_unconfirmed_total *  releases that went on in the background
//	heartbeat_seconds             round trips of heartbeats, by outcome: ok, failed
//	heartbeat_margin_seconds      trust that was left when a heartbeat was answered
//	events_dropped_total          hook events that were dropped before they got here
//
// The outcomes of an acquisition are acquired, held (busy, without waiting),
// timeout and cancelled (while waiting), unknown, closed (the client was),
// refused (a missing right, or something that the engine cannot do) and error.
//
// A number says what this process saw. An alert about another process's holder
// stands until this process has looked at that lock again; the whole table, also
// where nobody waits, is what pgmutex monitor looks at. Holds that Client.Close
// had to leave to go stale stay in locks_held.
package prometheus
