-- What a role needs at run time. UPDATE on the sequence and on the meta table is
-- for raising the tokens after a failover; DELETE on the event table is for
-- removing events that are a month old.
GRANT USAGE ON SCHEMA {{schema}} TO {{role}}
--
GRANT SELECT, INSERT, UPDATE, DELETE ON {{lock}}, {{waiter}} TO {{role}}
--
GRANT SELECT, INSERT, DELETE ON {{event}} TO {{role}}
--
GRANT SELECT, UPDATE ON {{meta}} TO {{role}}
--
GRANT USAGE, SELECT, UPDATE ON SEQUENCE {{token}} TO {{role}}
