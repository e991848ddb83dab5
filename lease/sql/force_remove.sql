-- Removes somebody's term, with a trace of who did it and why.
--
-- Invariant: acts on the term that was shown, so that whoever has taken the lock
-- since is not touched. Returns a row with the mark of the line if the term was
-- there.
--
-- $1 name  $2 term  $3 by  $4 reason
WITH {{opt}}gone AS (
  DELETE FROM {{lock}} AS t{{using_opt}}
  WHERE t.lock_name = $1::text AND t.instance_id = $2::text
  RETURNING t.lock_name, t.instance_id, t.promised_by, t.acquired_at, t.token, t.waiting
), event AS (
  INSERT INTO {{event}} (lock_name, instance_id, token, acquired_at, ended_at, how, ended_by, reason)
  SELECT lock_name, instance_id, CASE WHEN promised_by = instance_id THEN token END, acquired_at,
         pg_catalog.clock_timestamp(), 'forced', $3::text, NULLIF($4::text, '')
  FROM gone
)
SELECT waiting FROM gone
