-- Removes many terms, as release.sql does for one, but leaves out the rows that
-- somebody has locked, so that one guarded name does not hold up the others.
-- Returns a row for each element: gone (the mark of its line; null if it was not
-- removed) and whether it was to be seen.
--
-- $1 names  $2 terms  $3 tokens, 0 for unknown  $4 which get an event
WITH {{opt}}want AS MATERIALIZED (
  SELECT u.name, u.term, u.token, u.noted, u.n
  FROM ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::text[]),
                  pg_catalog.unnest($3::bigint[]), pg_catalog.unnest($4::boolean[]))
       WITH ORDINALITY AS u (name, term, token, noted, n){{comma_opt}}
), picked AS MATERIALIZED (
  SELECT t.ctid AS tid, want.token AS known, want.noted, want.n
  FROM want JOIN {{lock}} AS t ON t.lock_name = want.name AND t.instance_id = want.term
  FOR UPDATE OF t SKIP LOCKED
), gone AS (
  DELETE FROM {{lock}} AS t USING picked
  WHERE t.ctid = picked.tid
  RETURNING t.lock_name, t.instance_id, t.promised_by, t.acquired_at, t.token, t.waiting, 
            t.stop_at, t.stop_by, t.stop_reason,
            picked.known, picked.noted, picked.n
), event AS (
  INSERT INTO {{event}} (lock_name, instance_id, token, acquired_at, ended_at, how, ended_by, reason)
  SELECT lock_name, instance_id, COALESCE(token, NULLIF(known, 0)), acquired_at, pg_catalog.clock_timestamp(),
         CASE WHEN stop_at IS NULL THEN 'released' ELSE 'forced' END, stop_by, stop_reason
  FROM gone WHERE noted AND promised_by = instance_id
)
SELECT n, waiting, true FROM gone
UNION ALL
SELECT want.n, NULL, EXISTS (SELECT 1 FROM {{lock}} AS t WHERE t.lock_name = want.name AND t.instance_id = want.term)
FROM want WHERE want.n NOT IN (SELECT gone.n FROM gone)
