// Package advisory keeps locks as session advisory locks of PostgreSQL, many of
// them on one connection.
//
// # The model
//
// A client has one session of its own on the server, for as long as something is
// held, awaited or asked. A lock is a session advisory lock on it, under the
// 63-bit id of its name (pgmutex.AdvisoryID): whatever other program locks that
// number in the same database is excluded and excludes us. No table is needed.
//
//	          try                    unlock
//	(free) ---------> held by a session ---------> (free)
//	                       |
//	                       | the session ends: closed, terminated, silent for S
//	                       +---------> (free), and every hold on it has ended
//
// Within the client a table decides between goroutines, since the server would
// grant a lock to the same session twice.
//
// The session is a lease. The server ends it when it has heard nothing for S
// (pgmutex.Options.StaleAfter, 15 s); the client pings it many times in that time
// and trusts its holds for two thirds of S from the sending of the last ping that
// was answered. A reader that waits on the connection sees within milliseconds when
// the server ends it. All holds on a session end with it, at once, told with the
// reason "session ended"; none is ever continued on another session. The next
// acquisition opens a new one by itself.
//
// # What is promised
//
// While a hold is held, its session holds the lock, with one exception: when the
// server ends the session (by an administrator, a crash, a failover) in a moment in
// which the client cannot be told, somebody else may get the lock while the old hold
// is still trusted, for at most two thirds of S. Package lease has no such gap.
//
// A caller's context never cancels a statement on the session: it would cost all
// others their locks. The caller leaves, the answer is read, and a lock that nobody
// wants any more is given back before anything else is done. A lock counts as given
// back only when the server has said so; otherwise the session is closed.
//
// Waiters try again when a release of ours notifies them, and poll where the holder
// is another program. No statement of ours ever waits for a lock on the server.
// There is no order among waiters of different clients.
//
// # What is refused
//
// A connection through a pooler, unless Options.DirectSession vouches that it is in
// session mode; a standby; a server whose advisory locks do not work; more locks
// than half of the server's lock table in one session. The errors match
// errors.ErrUnsupported, except the last, and say what to do.
//
// # Without a client
//
// [TryTx] and [TrySQLTx] lock a name until the caller's transaction ends, behind
// any pooler; [AcquireConn] and [ReleaseConn] lock one on the caller's own session.
//
// A lock here and a lease of the same name (package lease) do not exclude each
// other. DESIGN.md has the reasons for everything.
package advisory
