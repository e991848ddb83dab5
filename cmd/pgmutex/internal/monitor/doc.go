// Package monitor watches the locks of a store from outside: it tells people of
// holders that have fallen silent, also where nobody waits, and shows the whole
// store as metrics.
//
// # Who tells
//
// Any number of monitors may watch one store. All of them look and serve metrics;
// the one that holds their common lock tells. An alert is told once for each hold,
// and once that it is over. The same hold alerts again only after it has been
// heard of for an hour.
//
// # What becomes of alerts when the common lock changes hands
//
// Each monitor keeps its own account of alerts, so that the next one knows at once
// what stands and what has passed in the last quarter of an hour. What has been
// told is written into the store: after telling, the monitor takes and gives back
// a lock named after the hold, pgmutex.alert.ID or pgmutex.clear.ID, which leaves a
// line in the history. Before telling something, a monitor reads that line.
//
//   - No alert is lost: whatever has no line is told by the next monitor. If a
//     monitor dies, that is after the common lock has gone stale; if it is stopped,
//     at once. The one exception is an end that no monitor has seen, since none ran
//     or the next one was started later: it is not told.
//   - An alert is told twice if a monitor dies, or loses the common lock, after a
//     receiver has taken the message and before the line is in the store. The
//     messages have the same id and event then. A webhook that takes a message and
//     does not answer in time gets it again for the same reason.
//   - A receiver that refuses, or does not answer any of the attempts, is given up
//     on: that is logged, counted, and not tried again by the next monitor.
package monitor
