-- Raises the tokens for a new timeline: a standby that was promoted may have
-- missed the last of the old ones.
--
-- Invariant: whoever sees the new timeline in the meta row draws tokens above
-- all that were drawn on the old one. The row's lock admits one at a time, the
-- second finds it done, and the sequence is moved before the row is visible.
-- The step is 2^44 for each promotion that was missed, so that a timeline which
-- was never raised for leaves room; a timeline that fell (after pg_upgrade)
-- counts as one.
--
-- $1 the server's timeline
WITH {{opt}}seen AS MATERIALIZED (
  SELECT m.timeline FROM {{meta}} AS m{{comma_opt}} FOR UPDATE OF m
), raised AS (
  UPDATE {{meta}} AS m SET timeline = $1::bigint FROM seen WHERE seen.timeline IS DISTINCT FROM $1::bigint
  RETURNING GREATEST(1, LEAST(1024, COALESCE($1::bigint - seen.timeline, 1))) AS steps
)
SELECT pg_catalog.setval({{token:literal}}::pg_catalog.regclass,
                         ((s.last_value >> 44) + raised.steps) << 44)
FROM raised, {{token}} AS s
