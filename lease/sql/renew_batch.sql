-- Prolongs many terms, as renew.sql does for one, and waits for locked rows. One
-- row that stays locked makes the statement fail as a whole.
--
-- Returns a row with how many terms were renewed, and one for each of them whose
-- holder is asked to stop: saying of each that all is well costs as much as the
-- renewal itself. When the number is not that of the terms, or the statement
-- failed, renew_around.sql finds out which. The arrays are unpacked in the list of
-- a SELECT, row by row; in FROM each would be stored as a whole first.
--
-- $1 names  $2 terms  $3 tokens, 0 for unknown
WITH {{opt}}kept AS (
  UPDATE {{lock}} AS t
  SET last_heartbeat = pg_catalog.clock_timestamp(), token = COALESCE(t.token, NULLIF(u.token, 0))
  FROM (SELECT pg_catalog.unnest($1::text[]) AS name, pg_catalog.unnest($2::text[]) AS term,
               pg_catalog.unnest($3::bigint[]) AS token OFFSET 0) AS u{{comma_opt}}
  WHERE t.lock_name = u.name AND t.instance_id = u.term
  RETURNING CASE WHEN t.stop_at IS NOT NULL THEN t.instance_id END AS asked, t.stop_by
)
SELECT '', pg_catalog.count(*), '' FROM kept
UNION ALL SELECT asked, 0, COALESCE(stop_by, '') FROM kept WHERE asked IS NOT NULL
