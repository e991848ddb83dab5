-- Ends the session that holds a key, and with it everything that it holds.
--
-- Invariant: no other session is ended: process, its start and the key are looked
-- at in the statement that ends it. Zero rows mean that this hold is over.
--
-- $1 the key, $2 the process, $3 its start in microseconds, NULL where that could
-- not be seen
SELECT pg_catalog.pg_terminate_backend(a.pid)
FROM pg_catalog.pg_stat_activity AS a
WHERE a.pid = $2::int4
  AND (pg_catalog.date_part('epoch', a.backend_start) * 1000000)::bigint IS NOT DISTINCT FROM $3::bigint
  AND EXISTS (SELECT 1 FROM pg_catalog.pg_locks AS l
              WHERE l.locktype = 'advisory' AND l.granted AND l.pid = a.pid AND l.objsubid = 1
                AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())
                AND ((l.classid::bigint << 32) | l.objid::bigint) = $1::bigint)
