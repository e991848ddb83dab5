-- What is there, read from the catalogs alone, so that it needs no right on
-- anything and cannot fail for want of one.
-- $1 schema, $2 table
WITH ns AS (
  SELECT n.oid, n.nspname, n.nspowner FROM pg_catalog.pg_namespace AS n WHERE n.nspname = $1::text
), rel AS (
  SELECT c.oid, c.relkind, c.relowner, c.reloptions, pg_catalog.substr(c.relname::text, pg_catalog.length($2::text) + 1) AS suffix
  FROM pg_catalog.pg_class AS c JOIN ns ON c.relnamespace = ns.oid
  WHERE c.relname IN ($2::text, $2::text || '_token', $2::text || '_meta', $2::text || '_waiter', $2::text || '_event')
), lock AS (
  SELECT * FROM rel WHERE suffix = ''
)
SELECT 'schema' AS kind, '' AS name, pg_catalog.pg_get_userbyid(nspowner)::text AS value FROM ns
UNION ALL
SELECT 'usage', '', pg_catalog.has_schema_privilege(oid, 'USAGE')::text FROM ns
UNION ALL
SELECT 'create', '', pg_catalog.has_schema_privilege(oid, 'CREATE')::text FROM ns
UNION ALL
SELECT 'relation', suffix, relkind::text FROM rel
UNION ALL
SELECT 'owner', suffix, pg_catalog.pg_get_userbyid(relowner)::text FROM rel
UNION ALL
SELECT 'option', o.option_name, o.option_value FROM lock, LATERAL pg_catalog.pg_options_to_table(lock.reloptions) AS o
UNION ALL
SELECT 'column', rel.suffix || '.' || a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod)
       || CASE WHEN a.attnotnull THEN ' not null' ELSE '' END
FROM rel JOIN pg_catalog.pg_attribute AS a ON a.attrelid = rel.oid
WHERE a.attnum > 0 AND NOT a.attisdropped AND rel.relkind IN ('r', 'p')
UNION ALL
SELECT CASE WHEN i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL
            THEN 'unique' ELSE 'index' END,
       (SELECT pg_catalog.string_agg(a.attname::text, ',' ORDER BY a.attname)
        FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)), ''
FROM lock JOIN pg_catalog.pg_index AS i ON i.indrelid = lock.oid
UNION ALL
SELECT 'right', rel.suffix || ':' || want.privilege,
       CASE WHEN rel.relkind = 'S' THEN pg_catalog.has_sequence_privilege(rel.oid, want.privilege)
            ELSE pg_catalog.has_table_privilege(rel.oid, want.privilege) END::text
FROM rel JOIN (VALUES
  ('', 'SELECT'), ('', 'INSERT'), ('', 'UPDATE'), ('', 'DELETE'),
  ('_waiter', 'SELECT'), ('_waiter', 'INSERT'), ('_waiter', 'UPDATE'), ('_waiter', 'DELETE'),
  ('_event', 'SELECT'), ('_event', 'INSERT'), ('_event', 'DELETE'),
  ('_meta', 'SELECT'), ('_meta', 'UPDATE'),
  ('_token', 'USAGE'), ('_token', 'SELECT'), ('_token', 'UPDATE')
) AS want (suffix, privilege) ON want.suffix = rel.suffix
UNION ALL
SELECT 'me', '', CURRENT_USER::text
