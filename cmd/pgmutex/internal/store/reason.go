package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/table"
	"github.com/pgmutex/pgmutex/lease"
)

// asking bounds the look at why a hold was ended: the message that it goes into
// must not come late.
const asking = time.Second

// recent is how much of the history is looked through for it.
const recent = 10

// StopReason returns what the operator gave as the reason for ending a hold, or
// for asking its holder to stop; empty where none was given, or the store does
// not tell.
func (s *Store) StopReason(name, fullName, term string) string {
	ctx, cancel := context.WithTimeout(context.Background(), asking)
	defer cancel()
	if !s.Local && s.Engine == Lease {
		if reason, err := s.stopReason(ctx, fullName, term); err == nil && reason != "" {
			return reason
		}
	}
	seen := 0
	for past, err := range s.client.History(ctx, name) {
		if seen++; err != nil || seen > recent {
			break
		}
		if past.Term == term {
			return past.Reason
		}
	}
	return ""
}

// stopReason reads what stands with the hold itself, while that is there.
func (s *Store) stopReason(ctx context.Context, fullName, term string) (reason string, err error) {
	config, err := lease.ConnConfig(s.URL)
	if err != nil {
		return "", err
	}
	if config.DefaultQueryExecMode != pgx.QueryExecModeSimpleProtocol {
		config.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return "", err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	err = conn.QueryRow(ctx, "SELECT COALESCE(l.stop_reason, '') FROM "+table.Parse(s.Table).Relation("")+
		" AS l WHERE l.lock_name = $1::text AND l.instance_id = $2::text", fullName, term).Scan(&reason)
	return reason, err
}
