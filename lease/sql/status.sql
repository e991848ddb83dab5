-- Locks as they stand, a page at a time in the order of their names, so that no
-- connection is kept while the reader works on a page. What our columns say
-- counts only where the present holder wrote them. Writes nothing.
--
-- $1 the name to show, null in the form that shows all  $2 show names after this one  $3 how many
-- $4 what a row without a valid promise gets (µs)
SELECT t.lock_name, t.instance_id, t.promised_by IS NOT DISTINCT FROM t.instance_id,
       {{micros:t.acquired_at}}, {{micros:pg_catalog.clock_timestamp() - t.last_heartbeat}},
       CASE WHEN t.promised_by = t.instance_id AND t.stale_after IS NOT NULL THEN {{micros:t.stale_after}}
            ELSE $4::bigint END,
       {{micros:t.heartbeat_every}}, {{micros:t.alert_after}}, t.token, t.details::text, t.stop_at IS NOT NULL,
       (SELECT pg_catalog.count(*) FROM {{waiter}} AS w
        WHERE w.lock_name = t.lock_name AND w.seen > pg_catalog.clock_timestamp() - interval '30 seconds')
FROM {{lock}} AS t
WHERE t.locked = 1 AND t.lock_name > $2::text {{where}}
ORDER BY t.lock_name LIMIT $3::int
