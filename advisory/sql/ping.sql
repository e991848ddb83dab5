-- A sign of life, which begins the session's lease anew. The answer is the
-- server's process: another one than before means that a pooler passes this
-- connection on.
SELECT pg_catalog.pg_backend_pid()
