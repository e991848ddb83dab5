-- Asks the holder of a term to stop; its next renewal reads the request.
--
-- Invariant: acts on the term that was shown. A holder that does not read our
-- columns (one without a promise) is not asked: nobody would answer. Returns a
-- row if the term was there, with whether it was asked.
--
-- $1 name  $2 term  $3 by  $4 reason
WITH {{opt}}asked AS (
  UPDATE {{lock}} AS t
  SET stop_at = pg_catalog.clock_timestamp(), stop_by = $3::text, stop_reason = NULLIF($4::text, '')
  {{only_opt}}
  WHERE t.lock_name = $1::text AND t.instance_id = $2::text
  RETURNING t.promised_by IS NOT DISTINCT FROM t.instance_id AS promised
)
SELECT promised FROM asked
