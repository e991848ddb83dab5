-- Takes a lock on the caller's own session if it is free and the session does not
-- hold it already: the server would count it twice. Never waits.
--
-- Invariant: one row; -1 where this session holds the key, NULL where another one
-- does, and otherwise the server's time in microseconds.
--
-- $1 the key
SELECT CASE
  WHEN EXISTS (SELECT 1 FROM pg_catalog.pg_locks AS l
               WHERE l.locktype = 'advisory' AND l.granted AND l.pid = pg_catalog.pg_backend_pid() AND l.objsubid = 1
                 AND ((l.classid::bigint << 32) | l.objid::bigint) = $1::bigint) THEN -1
  WHEN pg_catalog.pg_try_advisory_lock{{mode}}($1::bigint)
    THEN (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000)::bigint
END
