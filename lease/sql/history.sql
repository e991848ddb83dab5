-- Holds that have ended, the newest first, a page at a time. Writes nothing.
--
-- $1 the name to show, null in the form that shows all  $2 show events before this id  $3 how many
SELECT e.id, e.lock_name, e.instance_id, COALESCE(e.token, 0), {{micros:e.acquired_at}}, {{micros:e.ended_at}},
       e.how, COALESCE(e.ended_by, ''), COALESCE(e.reason, '')
FROM {{event}} AS e
WHERE e.id < $2::bigint {{where}}
ORDER BY e.id DESC LIMIT $3::int
