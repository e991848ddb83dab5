-- Wakes up who waits for a key. A statement of its own, after the lock has been
-- given back: a full notification queue must not fail a release.
--
-- $1 the key
SELECT pg_catalog.pg_notify('{{channel}}' || $1::bigint::text, '')
