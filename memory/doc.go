// Package memory is a lock store inside the process, for the tests of programs
// that use pgmutex.
//
// A [Store] is the database; each client opened on it is a process of its own.
// Two clients of one store exclude each other exactly as two hosts on one
// PostgreSQL do, two stores know nothing of each other, and nothing here
// excludes anybody outside of this process: it is no lock for production.
//
// The rules are the lease engine's: a row for each hold, a heartbeat, a promise
// (StaleAfter) after which anybody may take over, a waiting line that is first
// come, first served across clients. It understands shared locks on top, which
// the lease engine does not. Names have the lease engine's limit of 64
// characters, so that a test does not accept what production refuses.
//
// # Time
//
// The store's clock is the time package, so everything works inside the bubble
// of testing/synctest: a test waits out a StaleAfter of ten minutes in no time,
// and what it sees does not depend on the machine. Use a store in one bubble
// only.
//
// # Trouble on demand
//
// [Store.Lose] ends a hold for a given reason, [Store.Expire] makes its
// heartbeat too old, and [Store.SetFaults] cuts, slows or breaks the way between
// one holder and the store. A process that was killed is one that is partitioned
// for good: its rows stay until they are stale.
package memory
