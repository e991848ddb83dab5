-- Prolongs many terms, as renew.sql does for one, but leaves out the rows that
-- somebody has locked: one stuck row must not keep the others from being renewed.
-- Returns a row for each term that was renewed; a term without one has to be
-- asked for alone before anything is concluded. The lock taken here passes an
-- open guard.
--
-- $1 names  $2 terms  $3 tokens, 0 for unknown
WITH {{opt}}want AS MATERIALIZED (
  SELECT u.name, u.term, u.token, u.n
  FROM ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::text[]), pg_catalog.unnest($3::bigint[]))
       WITH ORDINALITY AS u (name, term, token, n){{comma_opt}}
), picked AS MATERIALIZED (
  SELECT t.ctid AS tid, want.token, want.n
  FROM want JOIN {{lock}} AS t ON t.lock_name = want.name AND t.instance_id = want.term
  FOR NO KEY UPDATE OF t SKIP LOCKED
)
UPDATE {{lock}} AS t
SET last_heartbeat = pg_catalog.clock_timestamp(), token = COALESCE(t.token, NULLIF(picked.token, 0))
FROM picked
WHERE t.ctid = picked.tid
RETURNING picked.n, t.stop_at IS NOT NULL, COALESCE(t.stop_by, '')
