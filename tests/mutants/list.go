package main

// A mutant is a bug and the tests that have to find it.
type mutant struct {
	name  string
	edits []edit
	in    string // the package of the tests
	tests string // which of them
}

// An edit replaces a text that the file has exactly once.
type edit struct{ file, old, mutated string }

const faults = "tests/faults"

var mutants = []mutant{
	// Trust.
	{"grant: deadline from the reply", []edit{{
		"internal/keeper/attempt.go", "l.deadline.Store(int64(look.sent + ask.Trust))", "l.deadline.Store(int64(look.arrived + ask.Trust))",
	}}, faults, "Row05"},
	{"renewal: deadline from the reply", []edit{{
		"internal/keeper/renew.go", "if !l.prolong(sent) {", "if !l.prolong(arrived) {",
	}}, faults, "Row05"},
	{"no local fence", []edit{
		{"internal/keeper/lease.go", "return time.Duration(l.deadline.Load()) - l.keeper.elapsed()", "return time.Hour"},
		{"internal/keeper/keeper.go", "if deadline <= now {", "if deadline <= -now {"},
	}, faults, "Row21"},
	{"fence > stale", []edit{{
		"options.go", "return staleAfter / 3 * 2", "return staleAfter / 3 * 4",
	}}, faults, "Row21"},
	{"fence only when the call returns", []edit{
		{"internal/keeper/keeper.go", "if deadline <= now {", "if deadline <= now && !k.renewing {"},
		{"internal/keeper/lease.go", "\tif l.left() > 0 {\n\t\treturn nil\n\t}", "\tif l.left() > 0 || l.keeper.stop.Err() == nil {\n\t\treturn nil\n\t}"},
	}, faults, "Row21"},
	{"Held goes by its context", []edit{{
		"hold.go", "func (h *Hold) Held() bool { return h.lease.Held() }", "func (h *Hold) Held() bool { return h.ctx.Err() == nil }",
	}}, "memory", "Contract"},
	{"own stale instead of the row's", []edit{
		{"lease/sql/take.sql", "CASE WHEN t.promised_by = t.instance_id AND t.stale_after IS NOT NULL THEN t.stale_after", "CASE WHEN t.promised_by = t.instance_id AND t.stale_after IS NOT NULL THEN $3::bigint * interval '1 microsecond'"},
		{"lease/look.go", "\th := l.rival\n\tswitch {", "\th := l.rival\n\tif h != nil {\n\t\th.StaleAfter = r.Term.StaleAfter\n\t}\n\tswitch {"},
	}, faults, "Row37"},
	{"a promise read without promised_by", []edit{
		{"lease/sql/take.sql", "CASE WHEN t.promised_by = t.instance_id AND t.stale_after", "CASE WHEN t.stale_after"},
		{"lease/look.go", "l.promised = orZero(promisedBy) == *id", "l.promised = promisedBy != nil"},
	}, "lease", "Python|Peer"},

	// Statements.
	{"takeover: heartbeat by now()", []edit{{
		"lease/sql/take.sql", "last_heartbeat = pg_catalog.clock_timestamp(), acquired_at", "last_heartbeat = pg_catalog.now(), acquired_at",
	}}, faults, "Row02"},
	{"takeover: heartbeat through EXCLUDED", []edit{{
		"lease/sql/take.sql", "last_heartbeat = pg_catalog.clock_timestamp(), acquired_at", "last_heartbeat = EXCLUDED.last_heartbeat, acquired_at",
	}}, faults, "Row02"},
	{"takeover of a row that has changed", []edit{{
		"lease/sql/take.sql", "WHERE (t.instance_id, t.last_heartbeat) = (SELECT cur.instance_id, cur.last_heartbeat FROM cur)", "",
	}}, "lease", "OneWinner"},
	{"token by nextval in VALUES", []edit{
		{"lease/sql/acquire.sql", "alert_after, details, waiting)", "alert_after, details, waiting, token)"},
		{"lease/sql/acquire.sql", "$6::text::jsonb, line.others\n", "$6::text::jsonb, line.others, pg_catalog.nextval({{token:literal}}::pg_catalog.regclass)\n"},
		{"lease/sql/acquire.sql", "RETURNING t.acquired_at, pg_catalog.nextval({{token:literal}}::pg_catalog.regclass) AS token", "RETURNING t.acquired_at, t.token"},
	}, faults, "Row01"},
	{"release by name", []edit{{
		"lease/sql/release.sql", "WHERE t.lock_name = $1::text AND t.instance_id = $2::text", "WHERE t.lock_name = $1::text AND $2::text IS NOT NULL",
	}}, faults, "Row28|Row54"},
	{"renewal by name", []edit{{
		"lease/sql/renew.sql", "WHERE t.lock_name = $1::text AND t.instance_id = $2::text", "WHERE t.lock_name = $1::text AND $2::text IS NOT NULL",
	}}, faults, "Row54"},
	{"renewal as upsert", []edit{
		{"lease/sql/renew.sql", "UPDATE {{lock}} AS t\n  SET last_heartbeat", "INSERT INTO {{lock}} AS t (lock_name, instance_id, last_heartbeat, acquired_at)\n" +
			"  SELECT $1::text, $2::text, pg_catalog.clock_timestamp(), pg_catalog.clock_timestamp() FROM {{opt_or_one}}\n" +
			"  ON CONFLICT (locked, lock_name) DO UPDATE SET last_heartbeat"},
		{"lease/sql/renew.sql", "  FROM {{opt_or_one}}\n  WHERE t.lock_name = $1::text AND", "  WHERE"},
	}, faults, "Row54"},
	{"guard by a plain SELECT", []edit{{
		"lease/sql/guard.sql", " FOR KEY SHARE OF t", "",
	}}, faults, "Guard"},
	{"waiters looked up by the release", []edit{
		{"lease/sql/release.sql", "\nSELECT waiting FROM gone", "\nSELECT EXISTS (SELECT 1 FROM {{waiter}} AS w WHERE w.lock_name = $1::text) FROM gone"},
	}, faults, "Row45"},

	// Outcomes.
	{"success despite 01000", []edit{{
		"internal/pgdb/owned.go", "\tif c.warned.Load() {", "\tif c.warned.Load() && c.db == nil {",
	}}, faults, "Row40"},
	{"unknown treated as busy", []edit{{
		"lease/run.go", "return engine.Answer{Outcome: engine.Unknown, Err: err}", "return engine.Answer{Outcome: engine.Busy, Err: err}",
	}}, faults, "Row07"},
	{"a disown that stops at 0 rows", []edit{{
		"internal/keeper/settle.go", "settled := r.Outcome == engine.Removed || r.Outcome == engine.Absent && !u.ghost", "settled := r.Outcome == engine.Removed || r.Outcome == engine.Absent",
	}}, faults, "Row06"},
	{"an attempt without an answer is forgotten", []edit{{
		"internal/keeper/attempt.go", "k.settle(&unsettled{term: term, until: l.arrived + term.StaleAfter, ghost: true})", "",
	}}, faults, "Row07"},
	{"a grant that nobody waits for is forgotten", []edit{{
		"internal/keeper/attempt.go", "k.settle(&unsettled{term: term, until: l.arrived + term.StaleAfter})", "",
	}}, faults, "Row10"},
}
