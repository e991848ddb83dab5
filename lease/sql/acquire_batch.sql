-- Takes those of many names that nobody holds, as acquire.sql does for one, and
-- says who holds the others. Returns one row for each element.
--
-- Invariant: as in acquire.sql. Rows are inserted in the order of their names, so
-- that two batches which meet wait for each other in one direction only. An
-- element that was not inserted and has no holder was kept back by the line, or
-- lost a race: it is asked for alone.
--
-- $1 names  $2 terms  $3 stale_after  $4 heartbeat intervals  $5 alert_after (s)
-- $6 details, empty for none  $7 wait  $8 this client's channel
WITH {{opt}}want AS MATERIALIZED (
  SELECT u.name, u.term, u.stale, u.heartbeat, u.alert, u.details, u.wait, u.n,
         EXISTS (SELECT 1 FROM {{waiter}} AS w
                 WHERE w.lock_name = u.name AND w.channel <> $8::text
                   AND w.seen > pg_catalog.clock_timestamp() - interval '30 seconds') AS others
  FROM ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::text[]), pg_catalog.unnest($3::float8[]),
                  pg_catalog.unnest($4::float8[]), pg_catalog.unnest($5::float8[]), pg_catalog.unnest($6::text[]),
                  pg_catalog.unnest($7::boolean[]))
       WITH ORDINALITY AS u (name, term, stale, heartbeat, alert, details, wait, n){{comma_opt}}
), cur AS MATERIALIZED (    -- by the limit, one look into the index for each name: a join may read all locks
  SELECT want.n, t.facts
  FROM want CROSS JOIN LATERAL (
    SELECT pg_catalog.json_build_array(
           t.instance_id, t.promised_by, pg_catalog.date_part('epoch', t.acquired_at), {{micros:t.last_heartbeat}},
           pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()), pg_catalog.date_part('epoch', t.stale_after),
           pg_catalog.date_part('epoch', t.heartbeat_every), t.details)::text AS facts
    FROM {{lock}} AS t WHERE t.locked = 1 AND t.lock_name = want.name LIMIT 1
  ) AS t
), won AS (
  INSERT INTO {{lock}} AS t (lock_name, instance_id, last_heartbeat, acquired_at, promised_by,
                             stale_after, heartbeat_every, alert_after, details, waiting)
  SELECT want.name, want.term, pg_catalog.clock_timestamp(), pg_catalog.clock_timestamp(), want.term,
         pg_catalog.make_interval(secs => want.stale), pg_catalog.make_interval(secs => want.heartbeat),
         pg_catalog.make_interval(secs => want.alert), NULLIF(want.details, '')::jsonb, want.others
  FROM want LEFT JOIN cur ON cur.n = want.n
  WHERE cur.n IS NULL AND NOT (want.wait AND want.others)
  ORDER BY want.name
  ON CONFLICT (locked, lock_name) DO NOTHING
  RETURNING t.lock_name, t.acquired_at, pg_catalog.nextval({{token:literal}}::pg_catalog.regclass) AS token
)
SELECT want.n, won.token, pg_catalog.date_part('epoch', won.acquired_at),
       {{micros:pg_catalog.pg_postmaster_start_time()}}, cur.facts
FROM want LEFT JOIN won ON won.lock_name = want.name LEFT JOIN cur ON cur.n = want.n
