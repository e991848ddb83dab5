// Package faults tries to break what pgmutex promises, on real PostgreSQL, and
// records what happened so that two independent checkers can judge it.
//
// A run is decided by one seed: who wants which lock, which faults come when,
// and for how long. Everything that clients do is written down as a history, one
// call a line, on one monotonic clock, that of the host where processes take
// part. From it are judged:
//
//   - belief: the times during which Held was seen to be true never overlap;
//   - tokens: they rise strictly in the order of the grants;
//   - the same once more by porcupine, from the calls alone;
//   - effect: a counter that guarded transactions read and write back loses no
//     update, and its log never goes back to a lower token;
//   - leaks: goroutines, connections, advisory locks, the size of the table;
//   - vacuity: a run in which nothing was taken over, lost or refused proves
//     nothing, and fails.
//
// Without tags there is one short run of each engine. The tag faults adds the rows
// of the tables in README.md, the tag long those of them that take minutes, and the
// tag soak a run that looks for growth.
package faults
