-- Takes those of many names that nobody holds, as insert.sql and insert_first.sql do
-- for one. Returns a row for each that was taken; the others are asked for alone.
--
-- Invariant: as in acquire.sql; the order of the rows is that of acquire_batch.sql.
--
-- $1 names  $2 terms  $3 stale_after  $4 heartbeat intervals  $5 alert_after (s)
-- $6 details, empty for none  $7 wait: do not overtake the line  $8 this client's channel
{{with_opt}}INSERT INTO {{lock}} AS t (lock_name, instance_id, last_heartbeat, acquired_at, promised_by,
                           stale_after, heartbeat_every, alert_after, details, waiting)
SELECT want.name, want.term, pg_catalog.clock_timestamp(), pg_catalog.clock_timestamp(), want.term,
       pg_catalog.make_interval(secs => want.stale), pg_catalog.make_interval(secs => want.heartbeat),
       pg_catalog.make_interval(secs => want.alert), NULLIF(want.details, '')::jsonb, want.others
FROM (SELECT u.name, u.term, u.stale, u.heartbeat, u.alert, u.details, u.wait,
             EXISTS (SELECT 1 FROM {{waiter}} AS w
                     WHERE w.lock_name = u.name AND w.channel <> $8::text
                       AND w.seen > pg_catalog.clock_timestamp() - interval '30 seconds') AS others
      FROM ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::text[]), pg_catalog.unnest($3::float8[]),
                      pg_catalog.unnest($4::float8[]), pg_catalog.unnest($5::float8[]), pg_catalog.unnest($6::text[]),
                      pg_catalog.unnest($7::boolean[])) AS u (name, term, stale, heartbeat, alert, details, wait)
      OFFSET 0) AS want{{comma_opt}}
WHERE NOT (want.wait AND want.others)
ORDER BY want.name
ON CONFLICT (locked, lock_name) DO NOTHING
RETURNING t.lock_name, pg_catalog.nextval({{token:literal}}::pg_catalog.regclass),
          pg_catalog.date_part('epoch', t.acquired_at), {{micros:pg_catalog.pg_postmaster_start_time()}}
