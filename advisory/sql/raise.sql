-- Raises the tokens when the server is on another timeline than they were raised
-- for, as after a failover, and does nothing otherwise. The same step, in the same
-- row, as the lease engine makes it.
--
-- Invariant: whoever sees the server's timeline in the meta row draws tokens above
-- all that were drawn on an earlier one. The row's lock admits one at a time, the
-- second finds it done, and the sequence is moved before the row is visible. A
-- session ends with its server, so once for each session is enough.
WITH seen AS MATERIALIZED (
  SELECT m.timeline, {{timeline}} AS current FROM {{meta}} AS m
  WHERE m.timeline IS DISTINCT FROM {{timeline}} FOR UPDATE OF m
), raised AS (
  UPDATE {{meta}} AS m SET timeline = seen.current FROM seen
  RETURNING GREATEST(1, LEAST(1024, COALESCE(seen.current - seen.timeline, 1))) AS steps
)
SELECT pg_catalog.setval({{token:literal}}::pg_catalog.regclass, ((s.last_value >> 44) + raised.steps) << 44)
FROM raised, {{token}} AS s
