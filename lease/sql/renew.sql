-- Prolongs one term.
--
-- Invariant: an UPDATE by term and never an upsert, so that a term which has
-- gone cannot come back. The time is the server's clock, not the statement's: it
-- may be as old as the wait for the row, which is bounded, and never older than
-- the request, from which the holder counts. No column of an index is written, so the update
-- stays within its page. Returns a row if and only if the term stands.
--
-- $1 name  $2 term  $3 token
WITH {{opt}}kept AS (
  UPDATE {{lock}} AS t
  SET last_heartbeat = pg_catalog.clock_timestamp(), token = COALESCE(t.token, NULLIF($3::bigint, 0))
  {{only_opt}}
  WHERE t.lock_name = $1::text AND t.instance_id = $2::text
  RETURNING t.stop_at IS NOT NULL AS stop, t.stop_by
)
SELECT stop, COALESCE(stop_by, '') FROM kept
