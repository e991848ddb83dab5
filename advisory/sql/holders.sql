-- Who holds advisory locks in this database, for one key or all.
--
-- Invariant: one row for each session and key that is held with a 64-bit key,
-- whoever took it. What the role may not see of a session is NULL. "Ours" is
-- whether the session has the mark of our sessions, so that it wakes up waiters;
-- the last column is whether it has heard a request to give the key back.
WITH held AS MATERIALIZED (
  SELECT (l.classid::bigint << 32) | l.objid::bigint AS key, l.objsubid, l.classid, l.objid, l.mode, l.pid
  FROM pg_catalog.pg_locks AS l
  WHERE l.locktype = 'advisory' AND l.granted
    AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())
)
SELECT h.key, h.pid, h.mode <> 'ExclusiveLock',
       EXISTS (SELECT 1 FROM held AS m WHERE m.pid = h.pid AND m.objsubid = 2 AND (m.classid, m.objid) = ({{ours}})),
       (SELECT pg_catalog.count(*) FROM held AS w WHERE w.objsubid = 1 AND w.key = (h.key | (-9223372036854775808)::bigint)),
       a.application_name, a.usename, COALESCE(pg_catalog.host(a.client_addr), a.client_hostname),
       (pg_catalog.date_part('epoch', a.backend_start) * 1000000)::bigint,
       EXISTS (SELECT 1 FROM held AS m WHERE m.pid = h.pid AND m.objsubid = 2 AND (m.classid, m.objid) = (h.classid, h.objid))
FROM held AS h LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = h.pid
WHERE h.objsubid = 1 AND {{which}}
ORDER BY h.key, h.pid
