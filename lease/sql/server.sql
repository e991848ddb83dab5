-- The server that answers, by the time of its start: nothing that could be
-- forbidden. Writes nothing.
SELECT {{micros:pg_catalog.pg_postmaster_start_time()}}
