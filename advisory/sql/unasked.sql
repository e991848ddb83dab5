-- Takes that back, once the key has been.
--
-- $1 the key
SELECT pg_catalog.pg_advisory_unlock_shared(('x' || pg_catalog.lpad(pg_catalog.to_hex($1::bigint >> 32), 8, '0'))::bit(32)::int4,
                                            ('x' || pg_catalog.lpad(pg_catalog.to_hex($1::bigint & 4294967295), 8, '0'))::bit(32)::int4)
