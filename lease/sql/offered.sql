-- Which names a notification may have been about: those that were offered to
-- this client, and those that nobody holds. Writes nothing.
--
-- $1 channel
SELECT w.lock_name
FROM {{waiter}} AS w
WHERE w.channel = $1::text
  AND (w.offered_at IS NOT NULL
       OR NOT EXISTS (SELECT 1 FROM {{lock}} AS t WHERE t.locked = 1 AND t.lock_name = w.lock_name))
