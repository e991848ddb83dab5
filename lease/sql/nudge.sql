-- Wakes the second in the line of a name without offering it anything: for an
-- engine that is closed before it could see whether its offer was answered.
-- Writes nothing.
--
-- $1 name
SELECT pg_catalog.pg_notify(next.channel, '')::text
FROM (
  SELECT w.channel FROM {{waiter}} AS w
  WHERE w.lock_name = $1::text AND w.offered_at IS NULL
    AND w.seen > pg_catalog.clock_timestamp() - interval '30 seconds'
  ORDER BY w.ticket LIMIT 1
) AS next
