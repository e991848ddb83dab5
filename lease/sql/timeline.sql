-- The server that answers, by the time of its start, its timeline, and the one
-- that the tokens were raised for. Fails as a whole where the role may not ask,
-- and on a standby. Writes nothing.
SELECT {{micros:pg_catalog.pg_postmaster_start_time()}}, {{timeline}}, (SELECT m.timeline FROM {{meta}} AS m)
