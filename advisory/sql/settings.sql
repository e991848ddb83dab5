-- Makes the session a lease of $1 milliseconds, whatever the role or the database
-- says, and takes off the limits that are made for queries.
--
-- Invariant: the server ends a session that says nothing for $1, and no earlier
-- than two thirds of it; a setting that this server does not have is left out.
--
-- $1 the lease, $2 and $3 idle time and interval of keepalives in seconds,
-- $4 the application's name where the session has none of its own
SELECT pg_catalog.set_config(s.name, n.value, false)
FROM (VALUES ('idle_session_timeout', $1::bigint::text),
             ('tcp_user_timeout', $1::bigint::text),
             ('tcp_keepalives_idle', $2::bigint::text),
             ('tcp_keepalives_interval', $3::bigint::text),
             ('tcp_keepalives_count', '3'),
             ('statement_timeout', '0'),
             ('lock_timeout', '0'),
             ('transaction_timeout', '0'),
             ('default_transaction_read_only', 'off'),
             ('application_name', $4::text)) AS n (name, value)
JOIN pg_catalog.pg_settings AS s ON s.name = n.name
WHERE s.name <> 'application_name' OR s.setting = '' OR s.setting LIKE 'pgmutex%'
