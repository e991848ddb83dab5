-- Lets the server look for a vanished client during a statement, too. Fails as a
-- whole on servers and systems that cannot, which is no matter: our statements
-- are short.
--
-- $1 milliseconds
SELECT pg_catalog.set_config('client_connection_check_interval', $1::bigint::text, false)
