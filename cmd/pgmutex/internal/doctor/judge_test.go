package doctor

import (
	"strings"
	"testing"
	"time"
)

// healthy returns facts of a server on which all is well.
func healthy() *Facts {
	f := &Facts{
		Table: "public.mutex_lock", Schema: "public", Name: "mutex_lock", Version: 170002, VersionText: "17.2", Role: "app",
		Settings: map[string]string{
			"default_transaction_isolation": "read committed", "synchronous_commit": "on", "fsync": "on", "autovacuum": "on",
			"tcp_keepalives_idle": "60", "tcp_keepalives_interval": "10", "tcp_keepalives_count": "6",
			"max_locks_per_transaction": "64", "max_connections": "100",
		},
		RoundTrip: time.Millisecond, There: true, HaveVersion: true, SchemaVersion: 1, SchemaUsage: true,
		Uniques: []string{"lock_name,locked", "instance_id,lock_name"}, Rights: map[string]bool{},
		Live: 10, Dead: 20, Updates: 5000, HOT: 4900, NotifyTried: true, NotifyHeard: true, ActivityVisible: true,
	}
	for _, op := range operations {
		for _, need := range op.needs {
			f.Rights[need] = true
		}
	}
	return f
}

func TestHealthy(t *testing.T) {
	list := healthy().Judge()
	if Worst(list) != OK || len(list) < 18 {
		t.Errorf("findings: %+v", list)
	}
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Facts)
		want   State
		says   string // in what was found or the fix
	}{
		{"version", func(f *Facts) { f.Version = 130012 }, Warning, "14"},
		{"primary", func(f *Facts) { f.Standby = true }, Error, "target_session_attrs"},
		{"primary", func(f *Facts) { f.Settings["default_transaction_read_only"] = "on" }, Error, `ALTER ROLE "app"`},
		{"pooler", func(f *Facts) { f.Pooling = Transaction }, Note, "transaction mode"},
		{"pooler", func(f *Facts) { f.Pooling = Session }, Note, "session mode"},
		{"pooler", func(f *Facts) { f.Pooling, f.Advisory = Session, true }, Error, "--engine lease"},
		{"isolation", func(f *Facts) { f.Settings["default_transaction_isolation"] = "repeatable read" }, Note, "repeatable read"},
		{"synchronous_commit", func(f *Facts) { f.Settings["synchronous_commit"] = "off" }, Note, "off"},
		{"synchronous_commit", func(f *Facts) { f.Settings["synchronous_commit"] = "remote_apply" }, OK, "remote_apply"},
		{"fsync", func(f *Facts) { f.Settings["fsync"] = "off" }, Error, "ALTER SYSTEM"},
		{"clock", func(f *Facts) { f.ClockOffset = -900 * time.Millisecond }, OK, "900ms behind"},
		{"clock", func(f *Facts) { f.ClockOffset = 3 * time.Second }, Note, "3s ahead"},
		{"clock", func(f *Facts) { f.ClockOffset, f.RoundTrip = 3*time.Second, 5*time.Second }, OK, "within 2.5s"},
		{"clock", func(f *Facts) { f.ClockOffset = -time.Hour }, Warning, "1h0m0s behind"},
		{"schema", func(f *Facts) { f.Problem, f.Fix = "column x is missing", "run it" }, Error, "run it"},
		{"schema", func(f *Facts) { f.Problem, f.RightsOnly = "role lacks rights", true }, OK, "version 1"},
		{"unique index", func(f *Facts) { f.Uniques = f.Uniques[1:] }, Error, "CREATE UNIQUE INDEX"},
		{"heartbeat index", func(f *Facts) { f.HeartbeatIndex = []string{`"a"."b"`} }, Error, `DROP INDEX "a"."b"`},
		{"privileges", func(f *Facts) { f.SchemaUsage = false }, Error, "GRANT USAGE ON SCHEMA"},
		{"privileges: history", func(f *Facts) { f.Rights["_event:SELECT"] = false }, Error, `GRANT SELECT ON "public"."mutex_lock_event" TO "app"`},
		{"privileges: take", func(f *Facts) { f.Rights["_token:USAGE"] = false }, Error, "ON SEQUENCE"},
		{"listen", func(f *Facts) { f.NotifyHeard = false }, Warning, "did not arrive"},
		{"listen", func(f *Facts) { f.NotifyHeard, f.NotifyErr = false, "LISTEN: no" }, Warning, "LISTEN: no"},
		{"listen", func(f *Facts) { f.NotifyHeard, f.NotifyTried, f.Pooling = false, false, Statement }, Note, "poll"},
		{"listen", func(f *Facts) { f.NotifyHeard, f.Standby = false, true }, Note, "standby"},
		{"keepalive", func(f *Facts) { f.Settings["tcp_keepalives_idle"] = "7200" }, OK, "our sessions set their own"},
		{"keepalive", func(f *Facts) { f.Pooling = Transaction }, OK, "within 2m0s"},
		{"keepalive", func(f *Facts) { f.Settings["tcp_keepalives_idle"], f.Pooling = "7200", Transaction }, Note, "2h0m0s"},
		{"keepalive", func(f *Facts) { f.Settings["tcp_keepalives_idle"], f.Pooling = "0", Session }, Note, "the system's"},
		{"keepalive", func(f *Facts) { f.Settings["tcp_keepalives_idle"], f.Socket = "0", true }, OK, "Unix socket"},
		{"timeouts", func(f *Facts) { f.Settings["statement_timeout"] = "1000" }, OK, "set their own"},
		{"timeouts", func(f *Facts) { f.Settings["statement_timeout"], f.Pooling = "1000", Transaction }, Warning, "ALTER ROLE"},
		{"timeouts", func(f *Facts) { f.Settings["statement_timeout"], f.Pooling = "60000", Transaction }, OK, "1m0s"},
		{"lock table", func(f *Facts) { f.LocksUsed = 5000 }, Warning, "max_locks_per_transaction = 128"},
		{"lock table", func(f *Facts) { f.LocksUsed = 6300 }, Error, "6300 of about 6400"},
		{"long transactions", func(f *Facts) { f.Oldest = []OldSnapshot{{What: "s", End: "e", Age: time.Minute, Xids: 9}} }, OK, "none"},
		{"long transactions", func(f *Facts) { f.Oldest = []OldSnapshot{{What: "session 7", End: "end it", Age: 10 * time.Minute}} }, Note, "end it"},
		{"long transactions", func(f *Facts) { f.Oldest = []OldSnapshot{{What: "session 7", End: "end it", Age: 2 * time.Hour}} }, Warning, "session 7"},
		{"long transactions", func(f *Facts) { f.Oldest = []OldSnapshot{{What: "slot", End: "drop it", Xids: 2_000_000}} }, Warning, "2000000 transactions"},
		{"long transactions", func(f *Facts) { f.ActivityVisible = false }, OK, "pg_read_all_stats"},
		{"autovacuum", func(f *Facts) { f.Settings["autovacuum"] = "off" }, Warning, "whole server"},
		{"autovacuum", func(f *Facts) { f.AutovacuumOff = true }, Warning, "RESET"},
		{"autovacuum", func(f *Facts) { f.Dead = 50_000 }, Warning, "keep up"},
		{"autovacuum", func(f *Facts) { f.Dead, f.Live = 50_000, 40_000 }, OK, "50000 dead"},
		{"heartbeats in place", func(f *Facts) { f.HOT = 1000 }, Warning, "20 %"},
		{"heartbeats in place", func(f *Facts) { f.Updates, f.HOT = 900, 0 }, OK, "too few"},
	} {
		f := healthy()
		c.change(f)
		found := false
		for _, g := range f.Judge() {
			if g.State != OK && g.Fix == "" || strings.Contains(g.Found+g.Fix, "\n") {
				t.Errorf("finding %+v", g)
			}
			if g.Name == c.name {
				found = true
				if g.State != c.want || !strings.Contains(g.Found+" "+g.Fix, c.says) {
					t.Errorf("%s: %+v, want %s with %q", c.name, g, c.want, c.says)
				}
			}
		}
		if !found {
			t.Errorf("%s is not among the findings", c.name)
		}
	}
}

func TestAdvisoryNeedsNoTable(t *testing.T) {
	f := healthy()
	f.Advisory, f.Problem, f.There = true, "no table", false
	if list := f.Judge(); Worst(list) != OK {
		t.Errorf("findings: %+v", list)
	}
}

func TestWorst(t *testing.T) {
	for want, list := range map[State][]Finding{
		OK: nil, Note: {{State: OK}, {State: Note}}, Warning: {{State: Warning}, {State: Note}}, Error: {{State: Error}, {State: Warning}},
	} {
		if got := Worst(list); got != want {
			t.Errorf("%v: %s", list, got)
		}
	}
}

func TestJudgeLocal(t *testing.T) {
	good := LocalFacts{Path: "/x", There: true, Mode: 0o600, FileSystem: "ext4", Boot: "b", Format: [2]int{1, 0}}
	for _, c := range []struct {
		change func(*LocalFacts)
		want   State
	}{
		{func(*LocalFacts) {}, OK},
		{func(f *LocalFacts) { f.There = false }, Note},
		{func(f *LocalFacts) { f.StatError = "no" }, Error},
		{func(f *LocalFacts) { f.Mode = 0o620 }, Warning},
		{func(f *LocalFacts) { f.Volatile = true }, Note},
		{func(f *LocalFacts) { f.Boot = "" }, Note},
		{func(f *LocalFacts) { f.OpenError = "is on a network file system" }, Error},
	} {
		f := good
		c.change(&f)
		if list := f.Judge(); Worst(list) != c.want {
			t.Errorf("%+v: %+v, want %s", f, list, c.want)
		}
	}
}
