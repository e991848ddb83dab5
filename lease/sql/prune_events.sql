-- Removes some of the events that are older than 30 days. Looks at the oldest
-- ones only, so that it costs the same whether there is anything to remove.
DELETE FROM {{event}} AS e
WHERE e.id IN (
  SELECT old.id FROM (SELECT o.id, o.ended_at FROM {{event}} AS o ORDER BY o.id LIMIT 1000) AS old
  WHERE old.ended_at < pg_catalog.clock_timestamp() - interval '30 days'
)
