// Package pgmutex gives a name one holder at a time, across processes and
// hosts, on the PostgreSQL that a team already runs.
//
//	locks, err := lease.Open(ctx, os.Getenv("DATABASE_URL"), nil)
//	...
//	err = locks.Do(ctx, "nightly-report", report)
//
// # The model
//
// A lock is a name. Whoever takes it gets a [Hold], which is one acquisition and
// never another: once it has ended it stays ended. What takes and keeps locks is
// a [Client], one for each process. The store is reached through an engine:
// package lease keeps a row with a heartbeat in PostgreSQL, package advisory holds
// session advisory locks there, package memory is a double for tests, and the
// module pgmutex/local keeps a file on one machine.
//
// A holder sends heartbeats. Others may take its lock over once it has been
// silent for StaleAfter; it trusts its own hold for two thirds of that after
// the sending of the last heartbeat that was confirmed, and then the hold ends,
// by itself:
//
//	                 acquire       heartbeats       silence
//	                    |         |    |    |
//	holder:   ----------[==== trusted ===========]------------------
//	                                        |--- 2/3 ---|
//	others:   ................ busy .................. busy .......[ take over
//	                                        |------ StaleAfter ----|
//
//	        Acquire                     release, or Close's patience ends
//	free --------------> held ------------------------------------------> ended
//	                      |                                                 ^
//	                      | deadline passed, taken over, forced, row gone   |
//	                      +------------------ lost, with a reason ----------+
//
// # What is promised
//
// Belief, of leases: two processes never both believe that they hold a name. The hold ends
// on the holder's own clock before anybody else may take the lock, whatever
// delays, losses, crashes, restarts, pauses of the process or sleeps of the host
// there are. This needs a database that keeps the rows it has committed and
// whose clock does not jump ahead by more than StaleAfter less the time of
// trust, a third of StaleAfter, and that every program on the table agrees on
// the threshold (see lease.Options.PeerStaleAfter). An advisory hold ends within
// a stated bound after its session; that bound is what that engine gives instead.
//
// Effect: work in the same database that checks the hold inside its own
// transaction ([Hold.Guard]) is exclusive with no assumption about clocks.
// Resources elsewhere get it by comparing the fencing token.
//
// Token: 63 bits, strictly rising for every grant of a name, also across a
// failover where a client may read the server's timeline. Python holders draw
// none, so nothing fences their writes.
//
// Told: each end of a hold is signalled once, with its reason, and is final.
//
// Honest: held by others, not granted, and unknown are three answers. Unknown
// is never reported as one of the others, and is cleaned up in the background.
//
// The file docs/loss-and-safety.md says, failure by failure, what a holder sees
// and when the next one gets in, and which tests show it.
//
// # What is not promised
//
// That a process which has just looked is not frozen before its next unguarded
// write: between [Hold.Held] and the write there is always a gap, and only the
// guard and the token close it.
//
// Exclusion across an asynchronous failover that lost the commit of the
// acquisition; the token then still orders the two holders. Token order across
// a restored dump. That a virtual machine which its hypervisor stopped or set
// back notices: it loses the time on every clock that it can read. Protection
// from malicious programs: locks are cooperative.
//
// # When a hold is lost
//
// The hold's context ends with a [LostError] as its cause, at once, with what
// is known; within a second the store is asked for the reason. Work that
// honours its context stops before the next holder can start. Do returns the
// loss joined to the work's own error. [Hold.Err] and [Hold.Held] read the clock
// themselves, so they are right even where the context lags behind, as after a
// pause of the process.
//
// # When the store cannot be reached
//
// Holds stay valid until their deadline; heartbeats are retried quietly and the
// [Hooks] tell. A new acquisition fails at first contact; one that has been
// told that the lock is busy goes on waiting for as long as its context allows.
// A release that cannot be confirmed goes on in the background.
package pgmutex
