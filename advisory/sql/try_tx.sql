-- Takes a lock for the length of the caller's transaction if it is free. Never
-- waits.
--
-- Invariant: one row; NULL where the lock was not taken, and otherwise the
-- server's time in microseconds.
--
-- $1 the key
SELECT CASE WHEN pg_catalog.pg_try_advisory_xact_lock{{mode}}($1::bigint)
  THEN (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000)::bigint END
