-- Whose term stands there now. Writes nothing.
--
-- $1 name
SELECT t.instance_id FROM {{lock}} AS t WHERE t.locked = 1 AND t.lock_name = $1::text
