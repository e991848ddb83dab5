-- Gives a lock back, and then looks whether somebody waits for it.
--
-- Invariant: 0 only where the session did not hold the lock; 2 where some other
-- session holds the waiters' mark, 1 where none did after the lock was free. A
-- waiter marks first and tries again after that, so either it is seen here or its
-- second try finds the lock free. CASE keeps the order. The look takes the mark
-- for the length of this statement, which the waiters' own tries may run into.
--
-- $1 the key, $2 the mark
SELECT CASE WHEN NOT pg_catalog.pg_advisory_unlock{{mode}}($1::bigint) THEN 0
            WHEN pg_catalog.pg_try_advisory_xact_lock($2::bigint) THEN 1
            ELSE 2 END
