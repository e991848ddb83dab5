-- Offers a free lock to the first waiter of its line who may still come, by a
-- notification on that client's channel. The offer stands for a second; then the
-- waiter is passed over until it is seen again.
--
-- Invariant: at most one offer stands in a line, and none is made while somebody
-- holds the lock ($2: whoever holds it is known to be stale).
-- Returns how long the standing offer lasts still, in µs, and no row where there
-- is nobody to offer to. The channel is empty where the offer stood already.
--
-- $1 name  $2 even if the row is there
WITH {{opt}}fast AS MATERIALIZED (    -- an offer that a crash forgets is made again by the next poll
  SELECT pg_catalog.set_config('synchronous_commit', 'off', true)
), head AS MATERIALIZED (
  SELECT w.channel, w.offered_at
  FROM {{waiter}} AS w, fast{{comma_opt}}
  WHERE w.lock_name = $1::text
    AND w.seen > pg_catalog.clock_timestamp() - interval '30 seconds'
    AND (w.offered_at IS NULL OR w.offered_at > pg_catalog.clock_timestamp() - interval '1 second')
    AND ($2::boolean OR NOT EXISTS (SELECT 1 FROM {{lock}} AS t WHERE t.locked = 1 AND t.lock_name = $1::text))
  ORDER BY w.ticket LIMIT 1
), offered AS (
  UPDATE {{waiter}} AS w SET offered_at = pg_catalog.clock_timestamp() FROM head
  WHERE w.lock_name = $1::text AND w.channel = head.channel AND w.offered_at IS NULL
  RETURNING w.channel
)
SELECT COALESCE(offered.channel, ''),
       COALESCE({{micros:interval '1 second' - (pg_catalog.clock_timestamp() - head.offered_at)}}, 1000000),
       CASE WHEN offered.channel IS NOT NULL THEN pg_catalog.pg_notify(offered.channel, '')::text END
FROM head LEFT JOIN offered ON true
