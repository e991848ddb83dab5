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
	}}, faults, "TestRow05"},
	{"grant: deadline from the reply that the caller reads", []edit{{
		"internal/keeper/attempt.go", "return look{Answer: a, sent: b.at, arrived: b.k.elapsed()}", "return look{Answer: a, sent: max(b.at, b.k.elapsed()), arrived: b.k.elapsed()}",
	}}, faults, "TestRow05"},
	{"renewal: deadline from the reply", []edit{{
		"internal/keeper/renew.go", "if !l.prolong(sent) {", "if !l.prolong(arrived) {",
	}}, faults, "TestRow05"},
	{"no local fence", []edit{
		{"internal/keeper/lease.go", "return time.Duration(l.deadline.Load()) - l.keeper.elapsed()", "return time.Hour"},
		{"internal/keeper/keeper.go", "if deadline <= now {", "if deadline <= -now {"},
	}, faults, "TestRow21"},
	{"fence > stale", []edit{{
		"options.go", "return staleAfter / 3 * 2", "return staleAfter / 3 * 4",
	}}, faults, "TestRow21"},
	{"fence only when the call returns", []edit{
		{"internal/keeper/keeper.go", "if deadline <= now {", "if deadline <= now && !k.renewing {"},
		{"internal/keeper/lease.go", "\tif l.left() > 0 {\n\t\treturn nil\n\t}", "\tif l.left() > 0 || l.keeper.stop.Err() == nil {\n\t\treturn nil\n\t}"},
	}, faults, "TestRow21"},
	{"Held goes by its context", []edit{{
		"hold.go", "func (h *Hold) Held() bool { return h.lease.Held() }", "func (h *Hold) Held() bool { return h.ctx.Err() == nil }",
	}}, "memory", "Contract"},
	{"own stale instead of the row's", []edit{
		{"lease/sql/take.sql", "CASE WHEN t.promised_by = t.instance_id AND t.stale_after IS NOT NULL THEN t.stale_after", "CASE WHEN t.promised_by = t.instance_id AND t.stale_after IS NOT NULL THEN $3::bigint * interval '1 microsecond'"},
		{"lease/look.go", "\th := l.rival\n\tswitch {", "\th := l.rival\n\tif h != nil {\n\t\th.StaleAfter = r.Term.StaleAfter\n\t}\n\tswitch {"},
	}, faults, "TestRow37"},
	{"a promise read without promised_by", []edit{
		{"lease/sql/take.sql", "CASE WHEN t.promised_by = t.instance_id AND t.stale_after", "CASE WHEN t.stale_after"},
		{"lease/look.go", "l.promised = orZero(promisedBy) == *id", "l.promised = promisedBy != nil"},
	}, "lease", "Python|Peer"},

	{"a waiter believes every step of the server's clock", []edit{{
		"internal/keeper/watch.go", "min(age, arrived-w.sent, r.StaleAfter/3)", "age",
	}}, "internal/keeper", "AStepOfTheStoresClock"},

	// Statements.
	{"takeover: heartbeat by now()", []edit{{
		"lease/sql/take.sql", "last_heartbeat = pg_catalog.clock_timestamp(), acquired_at", "last_heartbeat = pg_catalog.now(), acquired_at",
	}}, faults, "TestRow02"},
	{"takeover: heartbeat through EXCLUDED", []edit{{
		"lease/sql/take.sql", "last_heartbeat = pg_catalog.clock_timestamp(), acquired_at", "last_heartbeat = EXCLUDED.last_heartbeat, acquired_at",
	}}, faults, "TestRow02"},
	{"takeover of a row that has changed", []edit{{
		"lease/sql/take.sql", "WHERE (t.instance_id, t.last_heartbeat) = (SELECT cur.instance_id, cur.last_heartbeat FROM cur)", "",
	}}, "lease", "OneWinner"},
	{"token by nextval in VALUES", []edit{
		{"lease/sql/acquire.sql", "alert_after, details, waiting)", "alert_after, details, waiting, token)"},
		{"lease/sql/acquire.sql", "$6::text::jsonb, line.others\n", "$6::text::jsonb, line.others, pg_catalog.nextval({{token:literal}}::pg_catalog.regclass)\n"},
		{"lease/sql/acquire.sql", "RETURNING t.acquired_at, pg_catalog.nextval({{token:literal}}::pg_catalog.regclass) AS token", "RETURNING t.acquired_at, t.token"},
		{"lease/sql/insert.sql", "alert_after, details)", "alert_after, details, token)"},
		{"lease/sql/insert.sql", "$6::text::jsonb\n", "$6::text::jsonb, pg_catalog.nextval({{token:literal}}::pg_catalog.regclass)\n"},
		{"lease/sql/insert.sql", "RETURNING pg_catalog.nextval({{token:literal}}::pg_catalog.regclass)", "RETURNING t.token"},
		{"lease/sql/insert_first.sql", "alert_after, details, waiting)", "alert_after, details, token, waiting)"},
		{"lease/sql/insert_first.sql", "$6::text::jsonb,\n", "$6::text::jsonb, pg_catalog.nextval({{token:literal}}::pg_catalog.regclass),\n"},
		{"lease/sql/insert_first.sql", "RETURNING pg_catalog.nextval({{token:literal}}::pg_catalog.regclass)", "RETURNING t.token"},
	}, faults, "TestRow01"},
	{"release by name", []edit{{
		"lease/sql/release.sql", "WHERE t.lock_name = $1::text AND t.instance_id = $2::text", "WHERE t.lock_name = $1::text AND $2::text IS NOT NULL",
	}}, faults, "TestRow28|TestRow54"},
	{"renewal by name", []edit{{
		"lease/sql/renew.sql", "WHERE t.lock_name = $1::text AND t.instance_id = $2::text", "WHERE t.lock_name = $1::text AND $2::text IS NOT NULL",
	}}, faults, "TestRow54"},
	{"renewal as upsert", []edit{
		{"lease/sql/renew.sql", "UPDATE {{lock}} AS t\n  SET last_heartbeat", "INSERT INTO {{lock}} AS t (lock_name, instance_id, last_heartbeat, acquired_at)\n" +
			"  SELECT $1::text, $2::text, pg_catalog.clock_timestamp(), pg_catalog.clock_timestamp() {{only_opt}}\n" +
			"  ON CONFLICT (locked, lock_name) DO UPDATE SET last_heartbeat"},
		{"lease/sql/renew.sql", "  {{only_opt}}\n  WHERE t.lock_name = $1::text AND", "  WHERE"},
	}, faults, "TestRow54"},
	{"guard by a plain SELECT", []edit{{
		"lease/sql/guard.sql", " FOR KEY SHARE OF t", "",
	}}, faults, "Guard"},
	{"waiters looked up by the release", []edit{
		{"lease/sql/release.sql", "\nSELECT waiting FROM gone", "\nSELECT EXISTS (SELECT 1 FROM {{waiter}} AS w WHERE w.lock_name = $1::text) FROM gone"},
	}, faults, "TestRow45"},

	// Outcomes.
	{"success despite 01000", []edit{
		{"internal/pgdb/owned.go", "\tif c.warned.Load() {", "\tif c.warned.Load() && c.db == nil {"},
		{"internal/pgdb/running.go", "\tcase r.c.warned.Load():", "\tcase r.c.warned.Load() && r.c.db == nil:"},
	}, faults, "TestRow40"},
	{"unknown treated as busy", []edit{{
		"lease/run.go", "return engine.Answer{Outcome: engine.Unknown, Err: err}", "return engine.Answer{Outcome: engine.Busy, Err: err}",
	}}, faults, "TestRow07"},
	{"a disown that stops at 0 rows", []edit{{
		"internal/keeper/settle.go", "settled := r.Outcome == engine.Removed || r.Outcome == engine.Absent && !u.ghost", "settled := r.Outcome == engine.Removed || r.Outcome == engine.Absent",
	}}, faults, "TestRow06"},
	{"an attempt without an answer is forgotten", []edit{{
		"internal/keeper/attempt.go", "k.settle(&unsettled{term: term, until: l.arrived + term.StaleAfter, ghost: true})", "",
	}}, faults, "TestRow07"},
	{"a grant that nobody waits for is forgotten", []edit{{
		"internal/keeper/attempt.go", "k.settle(&unsettled{term: term, until: l.arrived + term.StaleAfter})", "",
	}}, faults, "TestRow10"},
	{"a request is forgotten when the caller that read its answer leaves", []edit{{
		"internal/keeper/attempt.go", "rest := func() { k.answered(p, b.answer(limit)) }", "rest := func() { _ = b.answer(limit) }",
	}}, "internal/keeper", "LeavesASentRequest"},

	// The advisory engine.
	{"advisory: on a connection that a pooler passes on", []edit{
		{"advisory/connect.go", "case s.backend != process && !s.e.set.vouched:", "case false:"},
		{"advisory/connect.go", "expected := process\n", "expected := process * 0\n"},
	}, "advisory", "Pooler"},
	{"advisory: a lock that the statement waits for", []edit{{
		"advisory/sql/try.sql", "pg_catalog.pg_try_advisory_lock{{mode}}($1::bigint)", "pg_catalog.pg_advisory_lock{{mode}}($1::bigint)::text IS NOT NULL",
	}}, "advisory", "NothingIsLeft"},
	{"advisory: the session is asked instead of the table", []edit{
		{"advisory/acquire.go", "if h := s.own(id, r.Term.Shared); h != nil {", "if h := s.own(id, r.Term.Shared); h != nil && id == 0 {"},
		{"advisory/acquire.go", "s.own(id, r.Term.Shared) == nil && s.table", "s.table"},
	}, faults, "AdvisoryRow01"},
	{"advisory: renewed without a sign of life", []edit{{
		"advisory/engine.go", "ask(ctx, s, true, s.renew, nil)", "error(nil), false, error(nil)",
	}}, "advisory", "HeartbeatIsTheServersWord"},
	{"advisory: the end of a session is not told", []edit{{
		"advisory/session.go", "\t\ts.e.lost(h.term, s.ended)\n", "\t\t_ = h\n",
	}}, faults, "AdvisoryRow12"},
	{"advisory: a failed try is not undone", []edit{{
		"advisory/acquire.go", "if undone := s.undo(id, r.Term.Shared); undone != nil {", "if undone := error(nil); undone != nil {",
	}}, "tests/security", "AdvisoryTokensAreRefused"},
	{"advisory: an unlock without proof", []edit{{
		"advisory/release.go", " && number(rows[0][0]) != 0", "",
	}}, "advisory", "UnlockThatIsNoProof"},
	{"advisory: the role's idle_session_timeout", []edit{{
		"advisory/sql/settings.sql", "('idle_session_timeout', $1::bigint::text),\n", "('idle_in_transaction_session_timeout', $1::bigint::text),\n",
	}}, "advisory", "RolesIdleTimeout"},
	{"advisory: force by the process alone", []edit{{
		"advisory/sql/force.sql", "AND ((l.classid::bigint << 32) | l.objid::bigint) = $1::bigint)", "OR $1::bigint IS NOT NULL)",
	}}, "advisory", "LookingWithoutRights"},
	{"advisory: locks on a standby", []edit{{
		"advisory/connect.go", "case truth(r[2]):", "case truth(r[2]) && s.e == nil:",
	}}, faults, "AdvisoryRow42"},

	// Security.
	{"a table's name is not quoted in a constant", []edit{{
		"internal/schema/names.go", "strings.ReplaceAll(s, \"'\", \"''\")", "s",
	}}, "tests/security", "TablesAreIdentifiers"},
	{"a viewer is refused", []edit{{
		"internal/schema/verify.go", "return reads && !f.may(\"\", \"INSERT\")", "return reads && f.may(\"\", \"INSERT\")",
	}}, "tests/security", "RolesUseTheLibrary"},
}
