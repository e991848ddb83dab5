-- Gives back a lock that may have been taken by a try that failed.
--
-- $1 the key
SELECT pg_catalog.pg_advisory_unlock{{mode}}($1::bigint)
