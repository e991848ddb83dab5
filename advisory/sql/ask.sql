-- Asks the session that holds a key to give that key back.
--
-- Invariant: no other session is asked: process, its start and the key are looked
-- at in the statement that asks. Zero rows mean that this hold is over. False is
-- that of a session without the mark of those that hear requests.
--
-- $1 the key, $2 the process, $3 its start in microseconds, NULL where that could
-- not be seen, $4 who asks
SELECT h.hears, CASE WHEN h.hears THEN pg_catalog.pg_notify('{{channel}}' || a.pid, $1::bigint || ' ' || $4::text)::text END
FROM pg_catalog.pg_stat_activity AS a,
     LATERAL (SELECT pg_catalog.bool_or(l.objsubid = 1 AND ((l.classid::bigint << 32) | l.objid::bigint) = $1::bigint) AS holds,
                     pg_catalog.bool_or(l.objsubid = 2 AND (l.classid, l.objid) = ({{hears}})) AS hears
              FROM pg_catalog.pg_locks AS l
              WHERE l.locktype = 'advisory' AND l.granted AND l.pid = a.pid
                AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())) AS h
WHERE a.pid = $2::int4
  AND (pg_catalog.date_part('epoch', a.backend_start) * 1000000)::bigint IS NOT DISTINCT FROM $3::bigint
  AND h.holds
