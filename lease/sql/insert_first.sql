-- Takes one name if nobody holds it, before those who wait for it: insert.sql for a
-- try. The row is marked for them.
--
-- Invariant: as in acquire.sql.
--
-- $1 name  $2 term  $3 stale_after  $4 heartbeat interval  $5 alert_after (s)
-- $6 details  $7 this client's channel
{{with_opt}}INSERT INTO {{lock}} AS t (lock_name, instance_id, last_heartbeat, acquired_at, promised_by,
                           stale_after, heartbeat_every, alert_after, details, waiting)
SELECT $1::text, $2::text, pg_catalog.clock_timestamp(), pg_catalog.clock_timestamp(), $2::text,
       pg_catalog.make_interval(secs => $3::float8), pg_catalog.make_interval(secs => $4::float8),
       pg_catalog.make_interval(secs => $5::float8), $6::text::jsonb,
       EXISTS (SELECT 1 FROM {{waiter}} AS w
               WHERE w.lock_name = $1::text AND w.channel <> $7::text
                 AND w.seen > pg_catalog.clock_timestamp() - interval '30 seconds')
{{only_opt}}
ON CONFLICT (locked, lock_name) DO NOTHING
RETURNING pg_catalog.nextval({{token:literal}}::pg_catalog.regclass),
          pg_catalog.date_part('epoch', t.acquired_at), {{micros:pg_catalog.pg_postmaster_start_time()}}
