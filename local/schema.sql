-- The store, format 1.0. Later formats only add: tables, or columns that have a
-- default, so that programs of either format keep locks in one file.
--
-- Times named ..._at are nanoseconds since boot, those named ..._wall
-- nanoseconds since 1970, for showing only.

-- A row per held lock.
CREATE TABLE lock (
  name        TEXT    NOT NULL PRIMARY KEY,
  term        TEXT    NOT NULL,            -- LABEL~NONCE, one acquisition
  token       INTEGER NOT NULL,
  boot        TEXT    NOT NULL,            -- what beat_at counts from, '' for unknown
  since_wall  INTEGER NOT NULL,
  beat        INTEGER NOT NULL,            -- number of the latest heartbeat of the term
  beat_at     INTEGER NOT NULL,
  beat_wall   INTEGER NOT NULL,
  stale_after INTEGER NOT NULL,            -- the holder's promise, nanoseconds
  heartbeat   INTEGER NOT NULL,
  alert_after INTEGER NOT NULL,
  details     TEXT    NOT NULL,            -- JSON, '' for none
  stop_by     TEXT,                        -- who asks the holder to stop
  stop_reason TEXT    NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;

-- A place in the waiting line of a name, one for each client. It decides about
-- fairness, never about exclusion.
CREATE TABLE waiter (
  name       TEXT    NOT NULL,
  client     TEXT    NOT NULL,
  ticket     INTEGER NOT NULL,             -- the order of the line
  seen_at    INTEGER NOT NULL,             -- its latest sign of life
  offered_at INTEGER NOT NULL DEFAULT 0,   -- since when it may take the lock, 0 while it may not
  passed     INTEGER NOT NULL DEFAULT 0,   -- it let its offer pass and blocks nobody
  PRIMARY KEY (name, client)
) STRICT, WITHOUT ROWID;

-- Holds that have ended, the latest ones.
CREATE TABLE event (
  id         INTEGER PRIMARY KEY,          -- rising
  name       TEXT    NOT NULL,
  term       TEXT    NOT NULL,
  token      INTEGER NOT NULL,
  since_wall INTEGER NOT NULL,
  ended_wall INTEGER NOT NULL,
  how        TEXT    NOT NULL,             -- released, taken over, forced
  ended_by   TEXT    NOT NULL,             -- '' for its holder
  reason     TEXT    NOT NULL
) STRICT;

-- The token of the latest grant, and the boot in which it was made.
CREATE TABLE meta (
  id    INTEGER PRIMARY KEY CHECK (id = 1),
  token INTEGER NOT NULL,
  boot  TEXT    NOT NULL
) STRICT;

INSERT INTO meta (id, token, boot) VALUES (1, 0, '');
