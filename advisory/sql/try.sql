-- Takes a lock if it is free. Never waits.
--
-- Invariant: one row; its value is NULL where the lock was not taken, and
-- otherwise the server's time in microseconds and the token. CASE draws the token
-- only once the lock is ours, so that tokens rise in the order of grants.
--
-- $1 the key
SELECT CASE WHEN pg_catalog.pg_try_advisory_lock{{mode}}($1::bigint)
  THEN (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000)::bigint::text || ' ' || {{draw}} END
