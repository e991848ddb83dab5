-- Takes one name if it is free or may be taken over, with all that acquire.sql
-- leaves out: a stale holder is replaced, and the places in the line are minded.
-- Always returns one row.
--
-- Invariant: a row is replaced only if it is still exactly the row that was
-- judged, term and heartbeat; so a heartbeat, a release or a takeover that comes
-- between the judgement and the write makes this attempt fail, and cur is the
-- previous holder. A failed attempt on a row that stands writes nothing.
--
-- $1 name  $2 term  $3 stale_after  $4 heartbeat interval  $5 alert_after (µs)
-- $6 details  $7 what a row without a valid promise gets (µs)
-- $8 judge: the server's clock decides about staleness
-- $9 take: this heartbeat of this term may be taken  $10 own: so may these terms
-- $11 wait: do not overtake the line  $12 this client's channel
WITH {{opt}}cur AS MATERIALIZED (
  SELECT t.instance_id, t.last_heartbeat, t.acquired_at, t.waiting, t.token, t.details, t.heartbeat_every,
         t.promised_by IS NOT DISTINCT FROM t.instance_id AS promised,
         pg_catalog.clock_timestamp() - t.last_heartbeat AS age,
         CASE WHEN t.promised_by = t.instance_id AND t.stale_after IS NOT NULL THEN t.stale_after
              ELSE $7::bigint * interval '1 microsecond' END AS stale,
         {{beat:t}} AS beat,
         t.instance_id = ANY ($10::text[]) AS own
  FROM {{lock}} AS t WHERE t.locked = 1 AND t.lock_name = $1::text
), me AS MATERIALIZED (
  SELECT w.ticket, w.seen, w.offered_at
  FROM {{waiter}} AS w WHERE $11::boolean AND w.lock_name = $1::text AND w.channel = $12::text
), ahead AS MATERIALIZED (    -- those who are in the line before us and may still come
  SELECT w.ticket, w.offered_at
  FROM {{waiter}} AS w
  WHERE $11::boolean AND w.lock_name = $1::text AND w.channel <> $12::text
    AND w.seen > pg_catalog.clock_timestamp() - interval '30 seconds'
    AND (w.offered_at IS NULL OR w.offered_at > pg_catalog.clock_timestamp() - interval '1 second')
    AND w.ticket < COALESCE((SELECT me.ticket FROM me), 9223372036854775807)
), gate AS MATERIALIZED (
  SELECT NOT EXISTS (SELECT 1 FROM cur WHERE NOT (own OR beat = $9::text OR ($8::boolean AND age > stale))) AS open,
         -- Nobody in the line could have an attempt of our own.
         EXISTS (SELECT 1 FROM ahead) AND NOT EXISTS (SELECT 1 FROM cur WHERE own) AS queued
), won AS (
  INSERT INTO {{lock}} AS t (lock_name, instance_id, last_heartbeat, acquired_at, promised_by,
                             stale_after, heartbeat_every, alert_after, details, waiting)
  SELECT $1::text, $2::text, pg_catalog.clock_timestamp(), pg_catalog.clock_timestamp(), $2::text,
         $3::bigint * interval '1 microsecond', $4::bigint * interval '1 microsecond',
         $5::bigint * interval '1 microsecond', $6::text::jsonb,
         EXISTS (SELECT 1 FROM {{waiter}} AS w
                 WHERE w.lock_name = $1::text AND NOT ($11::boolean AND w.channel = $12::text)
                   AND w.seen > pg_catalog.clock_timestamp() - interval '30 seconds')
  FROM gate{{from_opt}} WHERE gate.open AND NOT gate.queued
  ON CONFLICT (locked, lock_name) DO UPDATE SET
    instance_id = EXCLUDED.instance_id, promised_by = EXCLUDED.promised_by, replaced = t.instance_id,
    -- Not EXCLUDED: that was computed before the wait for the row.
    last_heartbeat = pg_catalog.clock_timestamp(), acquired_at = pg_catalog.clock_timestamp(),
    stale_after = EXCLUDED.stale_after, heartbeat_every = EXCLUDED.heartbeat_every,
    alert_after = EXCLUDED.alert_after, details = EXCLUDED.details,
    -- A waiter that marked the row while we waited for it must not be forgotten.
    waiting = t.waiting OR EXCLUDED.waiting,
    token = NULL, stop_at = NULL, stop_by = NULL, stop_reason = NULL
  WHERE (t.instance_id, t.last_heartbeat) = (SELECT cur.instance_id, cur.last_heartbeat FROM cur)
  -- Drawn here the token is later than the row's lock; in VALUES it ran backwards.
  RETURNING t.acquired_at, t.replaced, pg_catalog.nextval({{token:literal}}::pg_catalog.regclass) AS token
), event AS (
  INSERT INTO {{event}} (lock_name, instance_id, token, acquired_at, ended_at, how, ended_by)
  SELECT $1::text, cur.instance_id, CASE WHEN cur.promised THEN cur.token END, cur.acquired_at,
         won.acquired_at, 'taken over', $2::text
  FROM won JOIN cur ON cur.instance_id = won.replaced WHERE NOT cur.own
), left_line AS (
  DELETE FROM {{waiter}} AS w USING won
  WHERE $11::boolean AND w.lock_name = $1::text AND w.channel = $12::text
)
SELECT won.token, {{micros:won.acquired_at}}, won.replaced,
       {{micros:pg_catalog.pg_postmaster_start_time()}},
       cur.instance_id, {{micros:cur.acquired_at}}, cur.beat, {{micros:cur.age}}, {{micros:cur.stale}},
       {{micros:cur.heartbeat_every}}, cur.details::text, cur.promised, cur.own, cur.waiting,
       gate.open, gate.queued, {{micros:pg_catalog.clock_timestamp() - me.seen}}, me.offered_at IS NOT NULL,
       CASE WHEN won.token IS NULL THEN (SELECT pg_catalog.count(*) FROM ahead) END,
       CASE WHEN won.token IS NULL THEN
         (SELECT {{micros:interval '1 second' - (pg_catalog.clock_timestamp() - a.offered_at)}}
          FROM ahead AS a ORDER BY a.ticket LIMIT 1) END
FROM gate LEFT JOIN won ON true LEFT JOIN cur ON true LEFT JOIN me ON true
