-- Takes back a waiter's mark.
--
-- $1 the mark
SELECT pg_catalog.pg_advisory_unlock_shared($1::bigint)
