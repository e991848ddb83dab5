-- Makes whatever is missing. Each statement can be repeated: on the Python
-- package's table the first one does nothing and the second one adds our columns.
-- Statements are separated by a line with two dashes.
CREATE TABLE IF NOT EXISTS {{lock}} (
  lock_name varchar(64) NOT NULL,
  locked int NOT NULL DEFAULT 1,
  instance_id varchar(64) NOT NULL,
  last_heartbeat timestamptz NOT NULL,
  acquired_at timestamptz NOT NULL,
  CONSTRAINT {{uq}} UNIQUE (locked, lock_name),
  CONSTRAINT {{chk}} CHECK (locked = 1)
)
--
ALTER TABLE {{lock}}
  ADD COLUMN IF NOT EXISTS promised_by varchar(64),
  ADD COLUMN IF NOT EXISTS stale_after interval,
  ADD COLUMN IF NOT EXISTS heartbeat_every interval,
  ADD COLUMN IF NOT EXISTS alert_after interval,
  ADD COLUMN IF NOT EXISTS token bigint,
  ADD COLUMN IF NOT EXISTS waiting boolean NOT NULL DEFAULT false,
  ADD COLUMN IF NOT EXISTS replaced varchar(64),
  ADD COLUMN IF NOT EXISTS details jsonb,
  ADD COLUMN IF NOT EXISTS stop_at timestamptz,
  ADD COLUMN IF NOT EXISTS stop_by text,
  ADD COLUMN IF NOT EXISTS stop_reason text
--
ALTER TABLE {{lock}} SET (
  fillfactor = 50,
  autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 1000,
  autovacuum_analyze_scale_factor = 0,
  autovacuum_analyze_threshold = 10000,
  autovacuum_vacuum_cost_delay = 0
)
--
CREATE UNIQUE INDEX IF NOT EXISTS {{term}} ON {{lock}} (lock_name, instance_id)
--
ALTER TABLE {{lock}} REPLICA IDENTITY USING INDEX {{term}}
--
CREATE SEQUENCE IF NOT EXISTS {{token}} AS bigint MINVALUE 1 CACHE 1 NO CYCLE
--
CREATE TABLE IF NOT EXISTS {{waiter}} (
  lock_name varchar(64) NOT NULL,
  channel varchar(63) NOT NULL,
  ticket bigint GENERATED ALWAYS AS IDENTITY,
  holder text NOT NULL,
  seen timestamptz NOT NULL,
  offered_at timestamptz,
  CONSTRAINT {{waiter_key}} PRIMARY KEY (lock_name, channel)
) WITH (
  fillfactor = 50,
  autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 1000
)
--
CREATE TABLE IF NOT EXISTS {{event}} (
  id bigint GENERATED ALWAYS AS IDENTITY,
  lock_name varchar(64) NOT NULL,
  instance_id varchar(64) NOT NULL,
  token bigint,
  acquired_at timestamptz NOT NULL,
  ended_at timestamptz NOT NULL,
  how text NOT NULL,
  ended_by text,
  reason text,
  CONSTRAINT {{event_key}} PRIMARY KEY (id)
)
--
CREATE INDEX IF NOT EXISTS {{history}} ON {{event}} (lock_name, id)
--
CREATE TABLE IF NOT EXISTS {{meta}} (
  only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  version int NOT NULL,
  oldest int NOT NULL,
  timeline bigint
)
--
INSERT INTO {{meta}} AS m (version, oldest) VALUES ({{version}}, {{oldest}})
ON CONFLICT (only_row) DO UPDATE SET version = {{version}}, oldest = {{oldest}} WHERE m.version < {{version}}
