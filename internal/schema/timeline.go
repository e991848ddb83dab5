package schema

import (
	"context"

	"github.com/pgmutex/pgmutex/internal/pgdb"
)

// TimelineSQL asks a server for its timeline: it is one more after every
// promotion of a standby, and it is the part of a WAL file's name that says so.
// A role may lack the right to ask, and a standby cannot answer.
const TimelineSQL = `('x' || pg_catalog.lpad(pg_catalog.substr(pg_catalog.pg_walfile_name(` +
	`pg_catalog.pg_current_wal_lsn()), 1, 8), 16, '0'))::bit(64)::bigint`

// markTimeline notes the server's timeline in fresh tables: their sequence starts
// here and needs no raising. Where the role may not ask it stays unknown, and
// the first client that may raises the sequence once.
func markTimeline(ctx context.Context, db *pgdb.DB, n Names) error {
	err := db.Script(ctx, "note the timeline", "UPDATE "+n.Meta+" SET timeline = "+TimelineSQL+
		" WHERE timeline IS NULL AND NOT (SELECT is_called FROM "+n.Token+")")
	switch pgdb.Classify(err) {
	case pgdb.Denied, pgdb.Definite, pgdb.Undefined, pgdb.RowLocked:
		return nil
	}
	return err
}
