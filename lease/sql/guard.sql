-- Ties the caller's transaction to a term: takes the row's weakest lock, which
-- renewals pass and takeovers and releases wait for.
--
-- Invariant: returns a row if and only if the term stands, and from then on it
-- stands until the transaction ends or is rolled back to an earlier savepoint.
-- The unique index on (lock_name, instance_id) is what makes every change of
-- instance_id conflict with this lock.
--
-- $1 name  $2 term
SELECT 1 FROM {{lock}} AS t WHERE t.lock_name = $1 AND t.instance_id = $2 FOR KEY SHARE OF t
