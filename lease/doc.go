// Package lease keeps locks as rows of a table in PostgreSQL.
//
// # The model
//
// A row of the lock table is a lock that somebody holds. Its holder renews a
// heartbeat in it, by the server's clock; a row whose heartbeat is older than its
// holder promised is stale, and anybody may take it over. Releasing deletes the
// row.
//
//	         acquire                      stale_after without a heartbeat
//	(no row) ---------> held by a term -----------------------------------> stale
//	    ^                |  ^      |                                          |
//	    |    release     |  +------+ renew                          take over |
//	    +----------------+                                                    v
//	    ^                                                        held by another term
//	    |  forced release, from either
//
// A term is one acquisition: the row's lock_name and instance_id. The latter is
// LABEL~NONCE, drawn before the request is sent and never used again, so that a
// late request, renewal or release can only ever concern its own acquisition.
//
// The table is that of the Python package postgres-mutex with columns behind it:
// processes of both exclude each other on it.
//
// # What a client needs
//
// Tables, made once by [Migrate] (or by the command pgmutex init, or by what
// [SQL] prints), and up to three connections of its own: for work, for renewals,
// and one to listen on while it waits. Behind a transaction pooler it works
// without listening. It needs PostgreSQL 14 or newer, and no right to create
// anything.
//
// # What it does not do
//
// A promoted standby that missed the last commits may grant a lock that is held:
// tokens and guards still tell the two apart. Locks here and locks of package
// advisory do not exclude each other. DESIGN.md has the reasons for everything.
package lease
