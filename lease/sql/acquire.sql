-- Takes one name if nobody holds it and says who does otherwise: the whole of an
-- uncontended acquisition, and of a failed try. What it cannot do, taking over
-- and minding our own place in the line, take.sql does. Always returns one row.
--
-- Invariant: inserts and never changes a row, so that whoever holds the name is
-- safe from it. A failed attempt on a row that stands writes nothing, not even a
-- transaction ID. With $7 nobody who waits is overtaken; a grant knows whether
-- somebody waits, or else that waiter's mark finds the new row.
--
-- Every expression costs this statement a measurable part of its time, so facts
-- are returned as they are and judged by the caller: only take.sql acts on them.
--
-- $1 name  $2 term  $3 stale_after  $4 heartbeat interval  $5 alert_after (s)
-- $6 details  $7 wait: do not overtake the line  $8 this client's channel
WITH {{opt}}cur AS MATERIALIZED (
  SELECT t.instance_id, t.promised_by, t.acquired_at, t.last_heartbeat, t.stale_after, t.heartbeat_every, t.details
  FROM {{lock}} AS t WHERE t.locked = 1 AND t.lock_name = $1::text
), won AS (
  INSERT INTO {{lock}} AS t (lock_name, instance_id, last_heartbeat, acquired_at, promised_by,
                             stale_after, heartbeat_every, alert_after, details, waiting)
  SELECT $1::text, $2::text, pg_catalog.clock_timestamp(), pg_catalog.clock_timestamp(), $2::text,
         pg_catalog.make_interval(secs => $3::float8), pg_catalog.make_interval(secs => $4::float8),
         pg_catalog.make_interval(secs => $5::float8), $6::text::jsonb, line.others
  FROM (SELECT EXISTS (SELECT 1 FROM {{waiter}} AS w
                       WHERE w.lock_name = $1::text AND w.channel <> $8::text
                         AND w.seen > pg_catalog.clock_timestamp() - interval '30 seconds') AS others
        OFFSET 0) AS line{{comma_opt}}
  WHERE NOT EXISTS (SELECT 1 FROM cur) AND NOT ($7::boolean AND line.others)
  ON CONFLICT (locked, lock_name) DO NOTHING
  -- Drawn here the token is later than the row; in VALUES it ran backwards.
  RETURNING t.acquired_at, pg_catalog.nextval({{token:literal}}::pg_catalog.regclass) AS token
)
SELECT won.token, pg_catalog.date_part('epoch', won.acquired_at),
       {{micros:pg_catalog.pg_postmaster_start_time()}},
       cur.instance_id, cur.promised_by, pg_catalog.date_part('epoch', cur.acquired_at),
       {{micros:cur.last_heartbeat}}, pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()),
       pg_catalog.date_part('epoch', cur.stale_after), pg_catalog.date_part('epoch', cur.heartbeat_every),
       cur.details::text
FROM (SELECT 1) AS one LEFT JOIN won ON true LEFT JOIN cur ON true
