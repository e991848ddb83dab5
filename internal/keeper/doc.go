// Package keeper keeps leases: it is everything above the engines that decides
// who believes what, and does no I/O of its own.
//
// # The model
//
// A [Lease] is one term of one name. It may be trusted until a deadline on the
// local clock: the moment before its request was handed to the engine, plus
// trust. Only a positive answer to a renewal moves the deadline, to that
// renewal's own sending time plus trust, and only while the deadline has not
// passed. So the belief ends before anybody else may take the lock, whatever
// the engine, the network or the driver are doing at that moment; nothing has
// to be delivered for it to end.
//
//	         request sent            renewal sent
//	              |--- trust ---|          |
//	              |             deadline   |--- trust ---|
//	store:           heartbeat                  heartbeat
//	                    |------- StaleAfter -------|  anybody may take over
//
// # Who does what
//
// One goroutine, run, is the owner of all timers: it ends leases at their
// deadline, raises alerts, and starts the calls that are due. Calls into the
// engine are made by goroutines of their own, at most one renewal and one
// removal at a time, so that no timer ever waits for a call; a lone acquisition or
// release is made by its caller, who leaves it to a goroutine when its context ends.
// Everything that was started is joined by [Keeper.Close].
//
// Acquisitions and releases that are asked for at the same time travel in one call
// for each kind, and the kinds take turns (batch.go): while one call is made, the
// next gathers. Nobody waits for company, and a call that is slow holds the other
// kind up for 50 ms at most. Tries at one name that wait to be sent share the answer
// that somebody else holds it, which is all that they may share.
//
// A term whose fate is open (an attempt without an answer, a release without a
// confirmation) is unsettled: it is removed in the background until it is
// certainly gone or would be stale anyway.
//
// Waiting is done once per name and process: goroutines that want the same
// name stand in a local line, and only the first of them contends in the store.
package keeper
