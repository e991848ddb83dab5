-- Gives up this client's places.
--
-- Invariant: touches no place of another client. Returns the names in whose
-- lines an offer to us stands that somebody else should have now.
--
-- $1 names  $2 channel
WITH {{opt}}gone AS (
  DELETE FROM {{waiter}} AS w{{using_opt}}
  WHERE w.lock_name = ANY ($1::text[]) AND w.channel = $2::text
  RETURNING w.lock_name, w.offered_at
)
SELECT lock_name FROM gone WHERE offered_at IS NOT NULL
