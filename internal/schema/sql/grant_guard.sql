-- What a role needs whose transactions are guarded by a hold that another role
-- takes. A row lock asks for the right to update some column: this one can have
-- no other value, by a constraint.
GRANT USAGE ON SCHEMA {{schema}} TO {{role}}
--
GRANT SELECT (lock_name, instance_id), UPDATE (locked) ON {{lock}} TO {{role}}
