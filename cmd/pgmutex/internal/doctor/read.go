package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgmutex/pgmutex/cmd/pgmutex/internal/table"
	"github.com/pgmutex/pgmutex/lease"
)

// A Target is what is looked at.
type Target struct {
	URL      string // has been accepted by an engine, so that nothing of a password is where it would be shown
	Table    string // [SCHEMA.]NAME, likewise; empty for the default
	Advisory bool

	// Problem is what the lease engine itself says about the tables, nil if they
	// are as they must be.
	Problem    error
	RightsOnly bool // that is about rights
}

// samples is how often the clocks are compared; the quickest answer counts.
const samples = 5

// hearing bounds the wait for our own notification.
const hearing = time.Second

// Read asks the server. It fails where the server cannot be asked; its error
// quotes nothing of the connection string.
func Read(ctx context.Context, t Target) (*Facts, error) {
	f := &Facts{Advisory: t.Advisory, RightsOnly: t.RightsOnly, Settings: map[string]string{}, Rights: map[string]bool{}}
	name := table.Parse(t.Table)
	f.Schema, f.Name, f.Table = name.Schema, name.Table, name.String()
	if t.Problem != nil {
		f.Problem, f.Fix = splitProblem(t.Problem.Error())
	}
	conf, err := lease.ConnConfig(t.URL)
	if err != nil {
		return nil, err
	}
	if conf.DefaultQueryExecMode != pgx.QueryExecModeSimpleProtocol {
		conf.DefaultQueryExecMode = pgx.QueryExecModeExec // nothing prepared, for poolers
	}
	r := &reader{facts: f, config: conf}
	defer r.close()
	if r.a, err = r.connect(ctx); err != nil {
		return nil, err
	}
	for _, step := range []func(context.Context) error{
		r.server, r.settings, r.clock, r.relations, r.version, r.indexes, r.locks, r.snapshots, r.statistics, r.pooling, r.notify,
	} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// splitProblem takes what is wrong and what to do apart, which the engine's
// error joins by its last colon.
func splitProblem(text string) (problem, fix string) {
	if i := strings.LastIndex(text, ": "); i >= 0 {
		return text[:i], text[i+2:]
	}
	return text, "pgmutex init"
}

// reader has two connections: what stands in between shows only with two.
type reader struct {
	facts  *Facts
	config *pgx.ConnConfig
	a, b   *pgx.Conn
	pid    uint32 // that answered on a
}

func (r *reader) connect(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, r.config.Copy())
	return conn, failure("connect", err)
}

func (r *reader) close() {
	ctx, cancel := context.WithTimeout(context.Background(), hearing)
	defer cancel()
	for _, c := range []*pgx.Conn{r.a, r.b} {
		if c != nil {
			_ = c.Close(ctx)
		}
	}
}

// A queryError is a failure to ask. It says what the server said, and otherwise
// nothing that came from the connection string.
type queryError struct {
	what, text, state string
}

func (e *queryError) Error() string    { return e.what + ": " + e.text }
func (e *queryError) SQLState() string { return e.state }

func failure(what string, err error) error {
	var pg *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &pg):
		return &queryError{what: what, text: fmt.Sprintf("%s (SQLSTATE %s)", pg.Message, pg.Code), state: pg.Code}
	case errors.Is(err, context.DeadlineExceeded):
		return &queryError{what: what, text: "no answer in time", state: "08006"}
	}
	return &queryError{what: what, text: "the connection failed", state: "08006"}
}

func (r *reader) each(ctx context.Context, what, sql string, args []any, scan func(pgx.Rows) error) error {
	rows, err := r.a.Query(ctx, sql, args...)
	if err != nil {
		return failure(what, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return failure(what, err)
		}
	}
	return failure(what, rows.Err())
}

func (r *reader) server(ctx context.Context) error {
	f := r.facts
	_, f.Socket = strings.CutPrefix(r.config.Host, "/")
	return r.each(ctx, "look at the server", `SELECT pg_catalog.pg_backend_pid(), pg_catalog.current_setting('server_version_num')::int,
	  pg_catalog.current_setting('server_version'), pg_catalog.pg_is_in_recovery(), current_user::text, pg_catalog.current_database()::text,
	  pg_catalog.pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')`, nil,
		func(rows pgx.Rows) error {
			return rows.Scan(&r.pid, &f.Version, &f.VersionText, &f.Standby, &f.Role, &f.Database, &f.ActivityVisible)
		})
}

func (r *reader) settings(ctx context.Context) error {
	return r.each(ctx, "look at the settings", `SELECT name, setting FROM pg_catalog.pg_settings WHERE name IN (
	  'default_transaction_isolation', 'default_transaction_read_only', 'synchronous_commit', 'fsync', 'autovacuum',
	  'tcp_keepalives_idle', 'tcp_keepalives_interval', 'tcp_keepalives_count', 'tcp_user_timeout',
	  'statement_timeout', 'lock_timeout', 'idle_session_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout',
	  'max_locks_per_transaction', 'max_connections', 'max_prepared_transactions')`, nil,
		func(rows pgx.Rows) error {
			var name, value string
			err := rows.Scan(&name, &value)
			r.facts.Settings[name] = value
			return err
		})
}

// clock compares the clocks. The server reads its own somewhere between question
// and answer; the middle is wrong by half of the round trip at most.
func (r *reader) clock(ctx context.Context) error {
	f := r.facts
	for i := range samples {
		before := time.Now()
		var micros int64
		err := r.each(ctx, "ask for the time", "SELECT (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000)::bigint", nil,
			func(rows pgx.Rows) error { return rows.Scan(&micros) })
		if err != nil {
			return err
		}
		trip := time.Since(before)
		if i == 0 || trip < f.RoundTrip {
			f.RoundTrip = trip
			f.ClockOffset = time.UnixMicro(micros).Sub(before.Add(trip / 2))
		}
	}
	return nil
}

// relations reads what is there and what the role may do with it, from the
// catalogs alone, which needs no right.
func (r *reader) relations(ctx context.Context) error {
	f := r.facts
	err := r.each(ctx, "look at the rights", `SELECT pg_catalog.substr(c.relname::text, pg_catalog.length($2::text) + 1),
	    want.privilege, CASE WHEN c.relkind = 'S' THEN pg_catalog.has_sequence_privilege(c.oid, want.privilege)
	                         ELSE pg_catalog.has_table_privilege(c.oid, want.privilege) END,
	    COALESCE((SELECT o.option_value IN ('off', 'false', 'no', '0') FROM pg_catalog.pg_options_to_table(c.reloptions) AS o
	              WHERE o.option_name = 'autovacuum_enabled'), false)
	  FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
	  JOIN (VALUES ('SELECT'), ('INSERT'), ('UPDATE'), ('DELETE'), ('USAGE')) AS want (privilege)
	    ON CASE WHEN c.relkind = 'S' THEN want.privilege IN ('USAGE', 'SELECT', 'UPDATE') ELSE want.privilege <> 'USAGE' END
	  WHERE n.nspname = $1::text AND c.relkind IN ('r', 'p', 'S')
	    AND c.relname IN ($2::text, $2::text || '_token', $2::text || '_meta', $2::text || '_waiter', $2::text || '_event')`,
		[]any{f.Schema, f.Name}, func(rows pgx.Rows) error {
			var suffix, privilege string
			var may, off bool
			err := rows.Scan(&suffix, &privilege, &may, &off)
			f.Rights[suffix+":"+privilege] = may
			if suffix == "" {
				f.There, f.AutovacuumOff = true, off
			}
			return err
		})
	if err != nil {
		return err
	}
	return r.each(ctx, "look at the schema", `SELECT pg_catalog.has_schema_privilege(n.oid, 'USAGE')
	  FROM pg_catalog.pg_namespace AS n WHERE n.nspname = $1::text`, []any{f.Schema},
		func(rows pgx.Rows) error { return rows.Scan(&f.SchemaUsage) })
}

// version reads the meta row, if it may be read and is one.
func (r *reader) version(ctx context.Context) error {
	f := r.facts
	if !f.SchemaUsage || !f.Rights["_meta:SELECT"] || f.Problem != "" && !f.RightsOnly {
		return nil
	}
	return r.each(ctx, "look at the version of the schema", "SELECT version FROM "+f.relation("_meta"), nil,
		func(rows pgx.Rows) error {
			f.HaveVersion = true
			return rows.Scan(&f.SchemaVersion)
		})
}

func (r *reader) indexes(ctx context.Context) error {
	f := r.facts
	return r.each(ctx, "look at the indexes", `SELECT x.relname::text,
	    i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL,
	    ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute AS a
	          WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey) ORDER BY a.attname)
	  FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
	  JOIN pg_catalog.pg_index AS i ON i.indrelid = c.oid JOIN pg_catalog.pg_class AS x ON x.oid = i.indexrelid
	  WHERE n.nspname = $1::text AND c.relname = $2::text`, []any{f.Schema, f.Name},
		func(rows pgx.Rows) error {
			var name string
			var unique bool
			var columns []string
			if err := rows.Scan(&name, &unique, &columns); err != nil {
				return err
			}
			slices.Sort(columns)
			if unique {
				f.Uniques = append(f.Uniques, strings.Join(columns, ","))
			}
			if slices.Contains(columns, "last_heartbeat") {
				f.HeartbeatIndex = append(f.HeartbeatIndex, pgx.Identifier{f.Schema, name}.Sanitize())
			}
			return nil
		})
}

func (r *reader) locks(ctx context.Context) error {
	return r.each(ctx, "look at the lock table", `SELECT pg_catalog.count(*), pg_catalog.count(*) FILTER (WHERE locktype = 'advisory')
	  FROM pg_catalog.pg_locks WHERE NOT fastpath`, nil,
		func(rows pgx.Rows) error { return rows.Scan(&r.facts.LocksUsed, &r.facts.AdvisoryUsed) })
}

func (r *reader) statistics(ctx context.Context) error {
	f := r.facts
	return r.each(ctx, "look at the statistics", `SELECT n_live_tup, n_dead_tup, n_tup_upd, n_tup_hot_upd
	  FROM pg_catalog.pg_stat_all_tables WHERE schemaname = $1::text AND relname = $2::text`, []any{f.Schema, f.Name},
		func(rows pgx.Rows) error { return rows.Scan(&f.Live, &f.Dead, &f.Updates, &f.HOT) })
}

// snapshots reads the oldest holder of a snapshot of each kind.
func (r *reader) snapshots(ctx context.Context) error {
	return r.each(ctx, "look at the transactions", `(
	  SELECT 'session ' || a.pid || ' of ' || COALESCE(a.usename::text, a.backend_type), 'SELECT pg_terminate_backend(' || a.pid || ')',
	         COALESCE((pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() - a.xact_start) * 1000000)::bigint, 0),
	         pg_catalog.age(a.backend_xmin)::bigint
	  FROM pg_catalog.pg_stat_activity AS a
	  WHERE a.backend_xmin IS NOT NULL AND a.pid <> pg_catalog.pg_backend_pid()
	    AND (a.datname = pg_catalog.current_database() OR a.backend_type = 'walsender')
	  ORDER BY pg_catalog.age(a.backend_xmin) DESC, 3 DESC LIMIT 1
	) UNION ALL (
	  SELECT 'prepared transaction ' || p.gid, 'ROLLBACK PREPARED ' || pg_catalog.quote_literal(p.gid) || ', or COMMIT PREPARED',
	         (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() - p.prepared) * 1000000)::bigint, pg_catalog.age(p.transaction)::bigint
	  FROM pg_catalog.pg_prepared_xacts AS p WHERE p.database = pg_catalog.current_database() ORDER BY 3 DESC LIMIT 1
	) UNION ALL (
	  SELECT 'replication slot ' || s.slot_name, 'SELECT pg_drop_replication_slot(' || pg_catalog.quote_literal(s.slot_name) || ') if nobody uses it any more',
	         0, pg_catalog.age(s.xmin)::bigint
	  FROM pg_catalog.pg_replication_slots AS s WHERE s.xmin IS NOT NULL ORDER BY 4 DESC LIMIT 1
	)`, nil, func(rows pgx.Rows) error {
		var s OldSnapshot
		var micros int64
		err := rows.Scan(&s.What, &s.End, &micros, &s.Xids)
		s.Age = time.Duration(micros) * time.Microsecond
		r.facts.Oldest = append(r.facts.Oldest, s)
		return err
	})
}
