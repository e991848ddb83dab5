-- What a role needs that looks, and ends others' holds: it asks a holder to stop,
-- removes a row and leaves a trace of that, and wakes the next one. It can take
-- no lock.
GRANT USAGE ON SCHEMA {{schema}} TO {{role}}
--
GRANT SELECT ON {{lock}}, {{waiter}}, {{event}}, {{meta}} TO {{role}}
--
GRANT DELETE, UPDATE (stop_at, stop_by, stop_reason) ON {{lock}} TO {{role}}
--
GRANT UPDATE (offered_at) ON {{waiter}} TO {{role}}
--
GRANT INSERT ON {{event}} TO {{role}}
