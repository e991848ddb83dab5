-- Removes places of clients that have not been seen for five minutes. They have
-- been passed over for most of that time. Leaves out what is locked: it lives.
DELETE FROM {{waiter}} AS w
WHERE (w.lock_name, w.channel) IN (
  SELECT o.lock_name, o.channel FROM {{waiter}} AS o
  WHERE o.seen < pg_catalog.clock_timestamp() - interval '5 minutes'
  LIMIT 1000 FOR UPDATE SKIP LOCKED
)
