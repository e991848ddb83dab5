-- The first statement on a lock session: who answers, and whether it can be
-- trusted with locks.
--
-- Invariant: the last column is true only where an advisory lock that was just
-- taken is seen in pg_locks as this very session's. A server that has the
-- functions and does nothing in them is found out by it. The lock is the mark of
-- our sessions, shared, and stays: whoever finds a lock held can tell by it that
-- its holder will wake up waiters. CASE looks for it after it was taken, and takes
-- it only where the backend is the one that this connection belongs to: nothing
-- may be left behind on one that a pooler gives to others next.
--
-- $1 the process that the connection was given the key of, 0 for any
SELECT pg_catalog.pg_backend_pid(),
       pg_catalog.current_setting('server_version_num')::bigint,
       pg_catalog.pg_is_in_recovery(),
       pg_catalog.current_setting('max_locks_per_transaction')::bigint *
         (pg_catalog.current_setting('max_connections')::bigint +
          pg_catalog.current_setting('max_prepared_transactions')::bigint),
       CASE WHEN $1::bigint NOT IN (0, pg_catalog.pg_backend_pid()) THEN false
         WHEN pg_catalog.pg_try_advisory_lock_shared({{ours}})
         THEN EXISTS (SELECT 1 FROM pg_catalog.pg_locks AS l
                      WHERE l.locktype = 'advisory' AND l.granted AND l.pid = pg_catalog.pg_backend_pid()
                        AND l.objsubid = 2 AND (l.classid, l.objid) = ({{ours}}))
         ELSE false END
