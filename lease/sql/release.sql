-- Removes one term and writes down how it ended.
--
-- Invariant: acts on the term, so that no other term of the name is touched and
-- a repetition does nothing. Returns one row with the mark of the line if the
-- term was there, none if it was not. Waits for the holder's own open guard no
-- longer than the row wait.
--
-- $1 name  $2 term  $3 write an event  $4 its token, 0 for unknown
WITH {{opt}}gone AS (
  DELETE FROM {{lock}} AS t{{using_opt}}
  WHERE t.lock_name = $1::text AND t.instance_id = $2::text
  RETURNING t.lock_name, t.instance_id, t.promised_by, t.acquired_at, t.token, t.waiting, 
            t.stop_at, t.stop_by, t.stop_reason
), event AS (
  INSERT INTO {{event}} (lock_name, instance_id, token, acquired_at, ended_at, how, ended_by, reason)
  SELECT lock_name, instance_id, COALESCE(token, NULLIF($4::bigint, 0)), acquired_at, pg_catalog.clock_timestamp(),
         CASE WHEN stop_at IS NULL THEN 'released' ELSE 'forced' END, stop_by, stop_reason
  FROM gone WHERE $3::boolean AND promised_by = instance_id
)
SELECT waiting FROM gone
