// Package schema makes, upgrades and checks the tables of the lease engine.
//
// # The tables
//
//   - the lock table: a row is a lock that somebody holds. Its first five
//     columns, its unique and its check constraint are those of the Python
//     package postgres-mutex, so that either side may have created it and both
//     exclude each other on it. Ours stand behind them, nullable or defaulted,
//     so that the other side's INSERT still works.
//   - <table>_token: the sequence that fencing tokens come from.
//   - <table>_meta: one row with the version of the schema, and the server's
//     timeline for which the sequence was last raised.
//   - <table>_waiter: the waiting lines.
//   - <table>_event: holds that have ended, and how.
//
// # Versions
//
// A version only adds. The meta row says which version the tables have and the
// oldest version of this library that can work with them, so that programs of
// two neighbouring versions hold locks side by side while one is replaced by the
// other.
//
// # Set-up
//
// [Migrate] looks first and changes something only when something is missing, so
// that a role without the right to create anything can call it. What it changes
// it changes in one transaction, under a transaction-level advisory lock that
// only its own kind takes. The catalogs are not protected by that lock from
// anybody else's CREATE TABLE, so the errors of such a collision are answered by
// looking again.
//
// [SQL] prints the same statements for a database administrator, with the rights
// that a role needs at run time.
package schema
