package advisory

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/internal/pgtest"
)

func TestInline(t *testing.T) {
	for _, c := range []struct {
		args []any
		want string
	}{
		{[]any{int64(-1), "a"}, "SELECT (-1), 'a'"},
		{[]any{nil, "it's $1 \\"}, `SELECT NULL, `},
	} {
		got := inline("SELECT $1, $2", c.args)
		if len(got) < len(c.want) || got[:len(c.want)] != c.want {
			t.Errorf("%q", got)
		}
	}
	// As the server reads it, whatever standard_conforming_strings says.
	conn := pgtest.Conn(t, pgtest.Shared(t).Database(t))
	for _, setting := range []string{"on", "off"} {
		pgtest.Exec(t, conn, "SET standard_conforming_strings = "+setting)
		for _, label := range []string{"plain", "it's", `back\slash`, "$1", `\'; DROP`} {
			if got := pgtest.One[string](t, conn, inline("SELECT $1::text", []any{label})); got != label {
				t.Errorf("%s: %q became %q", setting, label, got)
			}
		}
	}
}

// Not whatever is full is the lock table.
func TestWhatIsFullIsNamed(t *testing.T) {
	for code, full := range map[string]bool{"53200": true, "53100": false, "53300": false} {
		err := refusal(&pgconn.PgError{Code: code, Message: "no"}).Err
		if strings.Contains(err.Error(), "lock table") != full {
			t.Errorf("%s: %v", code, err)
		}
	}
}

func TestTermIDs(t *testing.T) {
	for _, k := range []keyHolder{
		{pid: 7, app: "pgmutex a", ours: true, started: []byte("1700000000000000")},
		{pid: 2147483647, app: "with~tilde"},
		{pid: 1},
	} {
		pid, started, ok := sessionOf(k.termID())
		if !ok || pid != k.pid || (started == nil) != (k.started == nil) {
			t.Errorf("%q: %d %v %t", k.termID(), pid, started, ok)
		}
		if engine.Label(k.termID()) != k.label() {
			t.Errorf("label of %q", k.termID())
		}
	}
	// Terms of acquisitions are none of sessions.
	for _, id := range []string{"", "a", "a~abcdefghij234567", "a~7", "a~7.", "a~.1", "a~x.1", "a~7.x", "a~99999999999.1"} {
		if pid, _, ok := sessionOf(id); ok {
			t.Errorf("%q is taken for process %d", id, pid)
		}
	}
}

func TestChannels(t *testing.T) {
	for _, id := range []int64{0, 1, 1<<63 - 1} {
		if got, ok := idOf(channelOf(id)); !ok || got != id || len(channelOf(id)) > 63 {
			t.Errorf("%d: %d %t", id, got, ok)
		}
		if markOf(id) >= 0 {
			t.Errorf("the mark of %d is a key", id)
		}
	}
	for _, channel := range []string{"", "pgmutex", channelPrefix, channelPrefix + "x"} {
		if id, ok := idOf(channel); ok {
			t.Errorf("%q is taken for %d", channel, id)
		}
	}
}

func TestTable(t *testing.T) {
	table := newTable()
	hold := func(term string, id int64) *holding {
		return &holding{term: engine.Term{ID: term, Shared: true}, id: id}
	}
	one, two, other := hold("a~1", 1), hold("a~2", 1), hold("a~3", 2)
	for _, h := range []*holding{one, two, other} {
		table.add(h)
	}
	table.remove(one)
	table.remove(one)
	if table.len() != 2 || table.term("a~1") != nil || table.holder(1) != two || table.holder(2) != other {
		t.Errorf("%+v", table)
	}
	table.remove(two)
	if table.holder(1) != nil {
		t.Error("a holder of nothing")
	}
	if left := table.clear(); !slices.Equal(left, []*holding{other}) || table.len() != 0 {
		t.Errorf("cleared %v", left)
	}
}

func TestMemoryForgetsTheOldest(t *testing.T) {
	m := newMemory[int, string](2)
	m.put(1, "a")
	m.put(2, "b")
	m.put(1, "c")
	m.put(3, "d")
	if _, ok := m.get(1); ok {
		t.Error("the oldest is still there")
	}
	if v, _ := m.get(3); v != "d" {
		t.Error("the newest is not there")
	}
}

// TestSettingsOfTheSession asks the session itself.
func TestSettingsOfTheSession(t *testing.T) {
	e := started(t, pgtest.Shared(t).Database(t), nil, deaf{})
	term := engine.Term{Name: "x", ID: "größe~1", StaleAfter: 30 * time.Second}
	if a := e.Acquire(t.Context(), []engine.Request{{Term: term}})[0]; a.Outcome != engine.Granted {
		t.Fatalf("%+v", a)
	}
	s := e.current()
	rows, _, err := ask(t.Context(), s, false, func() []row {
		rows, err := s.query(&statement{name: "show", once: true, text: `SELECT name, setting FROM pg_settings WHERE name IN
			('idle_session_timeout', 'tcp_user_timeout', 'tcp_keepalives_idle', 'tcp_keepalives_interval', 'tcp_keepalives_count',
			 'client_connection_check_interval', 'statement_timeout', 'application_name')`})
		if err != nil {
			t.Error(err)
		}
		return rows
	}, nil)
	pgtest.Must(t, err)
	got := map[string]string{}
	for _, r := range rows {
		got[string(r[0])] = string(r[1])
	}
	for name, want := range map[string]string{
		"idle_session_timeout": "30000", "tcp_user_timeout": "30000", "tcp_keepalives_idle": "10", "tcp_keepalives_interval": "6",
		"tcp_keepalives_count": "3", "client_connection_check_interval": "10000", "statement_timeout": "0",
		"application_name": "pgmutex gr??e",
	} {
		if got[name] != want {
			t.Errorf("%s = %q, want %q", name, got[name], want)
		}
	}
}

type deaf struct{}

func (deaf) Lost(engine.Term, engine.LossReason, string, error) {}
func (deaf) Freed(string)                                       {}
