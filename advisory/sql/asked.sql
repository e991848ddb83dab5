-- Shows that this session has heard a request to give a key back, by a lock in the
-- form with two numbers: the halves of the key.
--
-- $1 the key
SELECT pg_catalog.pg_try_advisory_lock_shared(('x' || pg_catalog.lpad(pg_catalog.to_hex($1::bigint >> 32), 8, '0'))::bit(32)::int4,
                                              ('x' || pg_catalog.lpad(pg_catalog.to_hex($1::bigint & 4294967295), 8, '0'))::bit(32)::int4)
