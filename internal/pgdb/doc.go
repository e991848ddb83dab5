// Package pgdb is everything about connections that the engines on PostgreSQL
// share, so that an engine only writes statements.
//
// # What it is made from
//
// [Open] takes a connection string, a *pgxpool.Pool or a *sql.DB. From the first
// two it makes connections of its own, one for each [Lane] and one more while
// somebody listens: the pool is a recipe, and the load of the application never
// stands before a heartbeat. From a *sql.DB it borrows, and changes nothing in
// what it borrows: one connection for as long as anything is held ([DB.Reserve]),
// and a second one for moments, where the application leaves one free. With pgx's
// driver a connection of our own for LISTEN is made as the borrowed ones were;
// with others there is none.
//
// # What it learns
//
// The first statement on a new connection asks the server for its process ID.
// Where that differs from the one in the connection's key data, or that is not
// known, as with another driver than pgx, a pooler may stand in between: statements are not prepared then, the session keeps its settings,
// and LISTEN is given up. On a direct connection of our own the same statement
// applies [Settings]. So a [Statement] may have two texts, and the connection
// that runs it decides.
//
// # What it promises about failures
//
// An error says by its [Class] what became of the statement: refused as a whole,
// never sent, or unknown. Nothing but a renewal is repeated that may have been
// executed. After an error that leaves anything in doubt the connection is closed,
// and the next call makes a new one. An attempt to make a connection of our own outlives the
// call that it was begun for and serves the next: over a slow link it takes several
// round trips, for which no single call may have the time. For the same reason the
// answer to a renewal is read on when its call is over. A success that came with
// the warning 01000, which is how the server says that a commit may be unknown to
// its synchronous standby, is returned as unknown; on borrowed connections it cannot
// be seen.
//
// No error, log record or address contains any part of a password: see
// [DB.Address] and the comments in dsn.go and redact.go.
package pgdb
