-- Takes one name if nobody holds it and says who does otherwise: the whole of an
-- uncontended acquisition, and of a failed try. What it cannot do, taking over
-- and minding our own place in the line, take.sql does. Returns a row for a grant or
-- for a holder, and none where nobody was there and nothing was inserted: others
-- wait, or somebody was quicker.
--
-- Invariant: inserts and never changes a row, so that whoever holds the name is
-- safe from it. A failed attempt on a row that stands writes nothing, not even a
-- transaction ID. With $7 nobody who waits is overtaken; a grant knows whether
-- somebody waits, or else that waiter's mark finds the new row.
--
-- Every column of the result costs this statement a measurable part of its time,
-- so the facts about a holder are one, made where there is a holder, and judged by
-- the caller: only take.sql acts on them.
--
-- $1 name  $2 term  $3 stale_after  $4 heartbeat interval  $5 alert_after (s)
-- $6 details  $7 wait: do not overtake the line  $8 this client's channel
WITH {{opt}}cur AS MATERIALIZED (
  SELECT pg_catalog.json_build_array(
           t.instance_id, t.promised_by, pg_catalog.date_part('epoch', t.acquired_at), {{micros:t.last_heartbeat}},
           pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()), pg_catalog.date_part('epoch', t.stale_after),
           pg_catalog.date_part('epoch', t.heartbeat_every), t.details)::text AS facts
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
       {{micros:pg_catalog.pg_postmaster_start_time()}}, NULL::text
FROM won
UNION ALL SELECT NULL, NULL, NULL, cur.facts FROM cur
