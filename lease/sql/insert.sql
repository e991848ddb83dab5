-- Takes one name if nobody holds it and nobody else waits for it: the whole of an
-- uncontended acquisition. It is for names that are not known to be held; where it
-- returns no row, acquire.sql, which can say why, comes after it. What is left out
-- here costs as much again as anything that an INSERT does not need.
--
-- Invariant: as in acquire.sql.
--
-- $1 name  $2 term  $3 stale_after  $4 heartbeat interval  $5 alert_after (s)
-- $6 details  $7 this client's channel
{{with_opt}}INSERT INTO {{lock}} AS t (lock_name, instance_id, last_heartbeat, acquired_at, promised_by,
                           stale_after, heartbeat_every, alert_after, details)
SELECT $1::text, $2::text, pg_catalog.clock_timestamp(), pg_catalog.clock_timestamp(), $2::text,
       pg_catalog.make_interval(secs => $3::float8), pg_catalog.make_interval(secs => $4::float8),
       pg_catalog.make_interval(secs => $5::float8), $6::text::jsonb
{{only_opt}}
WHERE NOT EXISTS (SELECT 1 FROM {{waiter}} AS w
                  WHERE w.lock_name = $1::text AND w.channel <> $7::text
                    AND w.seen > pg_catalog.clock_timestamp() - interval '30 seconds')
ON CONFLICT (locked, lock_name) DO NOTHING
RETURNING pg_catalog.nextval({{token:literal}}::pg_catalog.regclass),
          pg_catalog.date_part('epoch', t.acquired_at), {{micros:pg_catalog.pg_postmaster_start_time()}}
