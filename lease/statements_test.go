package lease

import (
	"strings"
	"testing"

	"github.com/pgmutex/pgmutex/internal/pgtest"
	"github.com/pgmutex/pgmutex/internal/schema"
)

func TestEveryStatementIsPreparedByAServer(t *testing.T) {
	for _, table := range []string{"", `"o'dd ""schema"".x"."{{lock}} \ $1 -- ☃"`} {
		names, err := schema.Parse(table)
		pgtest.Must(t, err)
		conn := pgtest.Conn(t, database(t, &Options{Table: table}))
		s := newStatements(names)
		for _, st := range s.all() {
			if st.Name == "" || st.SQL == "" {
				t.Errorf("a statement is missing: %+v", st)
			}
			texts := []string{st.SQL, st.Direct}
			if st.Direct == "" {
				texts = texts[:1]
			}
			for _, text := range texts {
				if _, err := conn.Prepare(t.Context(), "", text); err != nil {
					t.Errorf("%s: %v\n%s", st.Name, err, text)
				}
			}
		}
		if _, err := conn.Prepare(t.Context(), "", s.guard); err != nil {
			t.Errorf("guard: %v\n%s", err, s.guard)
		}
	}
}

func TestEveryFileHasAnInvariantOrAPurpose(t *testing.T) {
	entries, err := files.ReadDir("sql")
	pgtest.Must(t, err)
	for _, e := range entries {
		text, err := files.ReadFile("sql/" + e.Name())
		pgtest.Must(t, err)
		if !strings.HasPrefix(string(text), "-- ") {
			t.Errorf("%s has no header", e.Name())
		}
		if strings.Contains(string(text), "*/") || strings.Contains(string(text), "now()") {
			t.Errorf("%s: contains what no statement of ours may", e.Name())
		}
	}
}
