-- What is known about terms: whose row stands there now, and the trace that the
-- end of the term left. Writes nothing.
--
-- $1 names  $2 terms
SELECT u.n, t.instance_id, e.how, e.ended_by
FROM ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::text[])) WITH ORDINALITY AS u (name, term, n)
LEFT JOIN {{lock}} AS t ON t.locked = 1 AND t.lock_name = u.name
LEFT JOIN LATERAL (
  SELECT e.how, e.ended_by FROM {{event}} AS e
  WHERE e.lock_name = u.name AND e.instance_id = u.term ORDER BY e.id DESC LIMIT 1
) AS e ON true
