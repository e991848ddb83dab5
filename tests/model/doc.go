// Package model explores the lease protocol: every state that two clients, a
// server and the network between them can get into, breadth first, so that a
// counterexample is one of the shortest. `go test -v ./tests/model` prints them.
//
// # What is modelled
//
// One lock. A client attempts, waits and watches, renews, gives back, disowns,
// gives up waiting for an answer, crashes and starts anew, as internal/keeper
// does; the server carries out one statement at a time, as lease/sql does. Times
// are whole ticks: StaleAfter is three (or six) of them, trust two thirds.
//
//   - A request or an answer takes any time, and may never come. What was given
//     up may still be carried out, however much later.
//   - A client does nothing for any time: nothing in the model is ever urgent. So
//     a process that is stopped, or starved, is part of every search.
//   - A crash leaves the row, and what was on its way.
//   - Belief is read off the client's clock and needs no action, as Held does.
//   - A row may be taken as soon as its age has reached StaleAfter, where ours has
//     to be past it: the Python package takes it then.
//   - Where clocks err, they err by a third of StaleAfter within StaleAfter, the
//     margin; or the server's by any amount, while nobody sees a row for the first
//     time that is from before the step.
//
// TestSound visits all of it, about 1.6 million states, and finds every property
// kept. TestBroken makes one mistake at a time, TestNeeded leaves out one
// assumption at a time, and each finds the story in which a promise breaks.
//
// TestTokens does the same for the order of the tokens when standbys are promoted
// that have missed what was committed last: lease/token.go, sql/raise.sql.
//
// # What is assumed
//
//   - The server's clock is not put forward by more than the margin while somebody
//     who has not watched the holder decides. Put back, it costs time only.
//   - The clocks of clients count all time that passes, the host's sleep included;
//     what they err by within StaleAfter and what the server's does stay below the
//     margin together.
//   - A statement that was committed stays so.
//   - Processes of the Python package have the threshold that was agreed.
//   - A heartbeat's time and term are not written a second time.
//   - A write is guarded, or made with the token, where a process that stands
//     still between its look and its write must not do harm.
//
// # What is left out
//
// More than two clients and two requests given up at a time: each search is whole
// within these. Who of several waiters is woken and goes first,
// which decides no grant. Several goroutines of one client: they wait behind one
// another. Batches: they are single statements to each row. A transaction's wait
// for a row: it is a request that takes longer. A request that arrives later
// than StaleAfter after it was given up leaves a row that nobody removes: the
// model forgets it, as the client does, and others wait StaleAfter for it.
package model
