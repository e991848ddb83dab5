-- Gives this client a place in the line of a name, or confirms the one it has,
-- and marks the lock row so that its holder wakes the line when it releases.
--
-- Invariant: when the row was marked, our place is visible to whoever deletes
-- the row: both are one transaction, and the mark has the row's lock, so that a
-- release is either before it (no row is marked: the lock is free, try again) or
-- after it (and returns the mark). The mark is written even where it is there
-- already: reading it would not order us with a release that is under way.
-- The place of a client that is known stays where it was; having been seen again
-- makes up for an offer that it did not answer.
--
-- $1 name  $2 channel  $3 holder label
WITH {{opt}}fast AS MATERIALIZED (    -- after a crash we join again
  SELECT pg_catalog.set_config('synchronous_commit', 'off', true)
), me AS (
  INSERT INTO {{waiter}} AS w (lock_name, channel, holder, seen)
  SELECT $1::text, $2::text, $3::text, pg_catalog.clock_timestamp() FROM fast{{comma_opt}}
  ON CONFLICT (lock_name, channel) DO UPDATE SET seen = pg_catalog.clock_timestamp(), offered_at = NULL
  RETURNING w.ticket
), mark AS (
  UPDATE {{lock}} AS t SET waiting = true FROM me WHERE t.locked = 1 AND t.lock_name = $1::text
  RETURNING t.promised_by IS NOT DISTINCT FROM t.instance_id AS promised
)
SELECT EXISTS (SELECT 1 FROM mark), COALESCE((SELECT promised FROM mark), true),
       (SELECT pg_catalog.count(*) FROM {{waiter}} AS w
        WHERE w.lock_name = $1::text AND w.channel <> $2::text AND w.ticket < me.ticket
          AND w.seen > pg_catalog.clock_timestamp() - interval '30 seconds'
          AND (w.offered_at IS NULL OR w.offered_at > pg_catalog.clock_timestamp() - interval '1 second'))
FROM me
