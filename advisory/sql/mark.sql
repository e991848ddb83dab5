-- Says that this session waits for a key. False where the mark is being looked at
-- by somebody who gives the lock back.
--
-- $1 the mark
SELECT pg_catalog.pg_try_advisory_lock_shared($1::bigint)
