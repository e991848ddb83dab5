-- What a role needs that looks at locks and their history and changes nothing.
GRANT USAGE ON SCHEMA {{schema}} TO {{role}}
--
GRANT SELECT ON {{lock}}, {{waiter}}, {{event}}, {{meta}} TO {{role}}
