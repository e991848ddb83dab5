package pgdb

// Settings are the settings that a session of our own has, on a connection
// without a pooler, whatever the role or the database says. Each has its reason:
//
//   - lock_timeout = [Options.RowWait]: nobody waits long for a row lock.
//   - statement_timeout = 0 and transaction_timeout = 0: a call is bounded by its
//     context, which also cancels the statement on the server. A bound of the
//     role's is made for its queries and would end a statement that waits for a
//     synchronous standby after its commit, with a success that is none.
//   - idle_session_timeout = 0: the server would end the session between two
//     heartbeats, now and then in the very moment in which a request is sent.
//   - idle_in_transaction_session_timeout = 60 s: transactions here are for
//     setting up a schema, and a process that is frozen in one must not keep
//     everybody else from the tables.
//   - default_transaction_isolation = read committed: under the stricter levels,
//     every race for a row is a serialization error.
//   - synchronous_commit = on, only where it was off: a hold that a crash can
//     undo is not one. The levels between are the role's choice.
//   - client_min_messages = warning, only where it was error: the server says by
//     a warning that a commit is not known to the standby.
//   - enable_seqscan = off: a table of locks is empty whenever VACUUM comes by, and
//     a plan made then reads all of it, with the dead rows of the next minute.
//   - jit = off: where a sequential scan is the only way, the one above makes its
//     plan so dear that the server would compile it, for 50 ms.
//   - tcp_keepalives_idle, _interval, _count = 60 s, 10 s, 6, only where the first
//     was longer: the sessions of a host that has vanished would keep their places
//     among the server's for two hours, as systems come.
//
// A statement for other connections sets for itself, with set_config(…, true),
// those of lock_timeout, statement_timeout, synchronous_commit and
// client_min_messages that it depends on.
const Settings = "lock_timeout, statement_timeout, transaction_timeout, idle_session_timeout, " +
	"idle_in_transaction_session_timeout, default_transaction_isolation, synchronous_commit, client_min_messages, enable_seqscan, jit, " +
	"tcp_keepalives_idle, tcp_keepalives_interval, tcp_keepalives_count"

// introduction is the first statement on a new connection of our own. $1 is the
// process ID from the connection's key data, $2 the lock timeout.
//
// The settings are read in a materialized expression, before any is changed, and
// changed only where the process that runs the statement is the one that $1
// names. A setting that the server does not have reads as NULL and is left
// alone. Whether the statement is a transaction of its own is shown by the two
// times, where it came in one message of the simple protocol.
const introduction = `WITH seen AS MATERIALIZED (
  SELECT pg_catalog.pg_backend_pid() AS pid,
         pg_catalog.current_setting('server_version_num')::int4 AS version,
         pg_catalog.pg_is_in_recovery() AS standby,
         current_user::text AS role,
         pg_catalog.current_database()::text AS database,
         pg_catalog.current_setting('default_transaction_read_only')::bool AS read_only,
         pg_catalog.current_setting('synchronous_commit') AS synchronous_commit,
         pg_catalog.current_setting('default_transaction_isolation') AS isolation,
         pg_catalog.current_setting('client_min_messages') AS messages,
         pg_catalog.current_setting('idle_session_timeout', true) AS idle_session,
         pg_catalog.current_setting('transaction_timeout', true) AS transaction,
         pg_catalog.current_setting('tcp_keepalives_idle', true) AS silence
)
SELECT pid, version, standby, role, database, read_only, synchronous_commit, isolation,
       pg_catalog.statement_timestamp() = pg_catalog.transaction_timestamp(),
       CASE WHEN pid = $1::int4 THEN pg_catalog.concat(
         pg_catalog.set_config('lock_timeout', $2::text, false),
         pg_catalog.set_config('statement_timeout', '0', false),
         pg_catalog.set_config('idle_in_transaction_session_timeout', '60s', false),
         pg_catalog.set_config('default_transaction_isolation', 'read committed', false),
         pg_catalog.set_config('enable_seqscan', 'off', false),
         pg_catalog.set_config('jit', 'off', false),
         CASE WHEN idle_session IS NOT NULL THEN pg_catalog.set_config('idle_session_timeout', '0', false) END,
         CASE WHEN transaction IS NOT NULL THEN pg_catalog.set_config('transaction_timeout', '0', false) END,
         CASE WHEN synchronous_commit = 'off' THEN pg_catalog.set_config('synchronous_commit', 'on', false) END,
         CASE WHEN silence ~ '^[0-9]{1,9}$' THEN CASE WHEN silence::int4 > 60 THEN pg_catalog.concat(
           pg_catalog.set_config('tcp_keepalives_idle', '60', false),
           pg_catalog.set_config('tcp_keepalives_interval', '10', false),
           pg_catalog.set_config('tcp_keepalives_count', '6', false)) END END,
         CASE WHEN messages = 'error' THEN pg_catalog.set_config('client_min_messages', 'warning', false) END) END
FROM seen`
