//go:build interop

package interop

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pgmutex/pgmutex"
)

// golden are names and their ids, as both sides derive them for ever.
var golden = []struct {
	name string
	id   int64
}{
	{"a", 5374906597990186442},
	{"job", 6812988570718632683},
	{"nightly-report", 7440995589958059143},
	{"billing/nightly-report", 7892688061259820697},
	{"migration:tenant-abc", 2549018982395383070},
	{"migration:6ba7b810-9dad-11d1-80b4-00c04fd430c8", 7908361250980880350},
	{"täglich/日本語/🔒", 4928925886621248356},
	{" spaced  out ", 3053079901341540698},
}

const tenant = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"

func tenantID(t testing.TB) (id [16]byte) {
	t.Helper()
	_, err := hex.Decode(id[:], []byte(strings.ReplaceAll(tenant, "-", "")))
	must(t, err)
	return id
}

// anyPeer is a Python process that is asked for what needs no database.
func anyPeer(t *testing.T) *peer {
	t.Helper()
	return startPeer(t, "host=nowhere.invalid", "job", "python-1", within(agreed))
}

// TestAdvisoryIDIsPythons: the id of a name is the one that the lock manager of
// eventsource-py locks.
func TestAdvisoryIDIsPythons(t *testing.T) {
	t.Parallel()
	var names []string
	for _, g := range golden {
		names = append(names, g.name)
	}
	for i := range 200 { // half of them have the top bit set before it is cleared
		names = append(names, fmt.Sprintf("name-%d", i))
	}
	names = append(names, strings.Repeat("ü", 512), `quote'd "and" back\slash %s`)
	ids := decode[[]string](t, anyPeer(t).do("ids", args{"names": names}))
	for i, name := range names {
		if got := strconv.FormatInt(pgmutex.AdvisoryID(name), 10); got != ids[i] {
			t.Errorf("%q: AdvisoryID is %s, Python's id is %s", name, got, ids[i])
		}
	}
	for _, g := range golden {
		if got := pgmutex.AdvisoryID(g.name); got != g.id {
			t.Errorf("AdvisoryID(%q) = %d, want %d", g.name, got, g.id)
		}
	}
}

// TestMigrationKeyIsPythons: and so is the name of a tenant's operation.
func TestMigrationKeyIsPythons(t *testing.T) {
	t.Parallel()
	id := tenantID(t)
	operations := []string{"migration", "cutover", "re:index", "Löschen"}
	got := []string{pgmutex.MigrationKey(id, "")}
	for _, o := range operations {
		got = append(got, pgmutex.MigrationKey(id, o))
	}
	p := anyPeer(t)
	for _, spelling := range []string{tenant, strings.ToUpper(tenant)} {
		want := decode[[]string](t, p.do("migration_keys", args{"tenant": spelling, "operations": operations}))
		if !slices.Equal(got, want) {
			t.Errorf("MigrationKey gives %q, Python %q", got, want)
		}
	}
}

// TestDocumentation: docs/interop.md has the golden vectors as they are here, and
// names no test that does not exist.
func TestDocumentation(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "interop.md"))
	must(t, err)
	for _, g := range golden {
		if row := fmt.Sprintf("| `%s` | %d |", g.name, g.id); !strings.Contains(string(text), row) {
			t.Errorf("docs/interop.md lacks the row\n%s", row)
		}
	}
	var code strings.Builder
	files, err := filepath.Glob("*_test.go")
	must(t, err)
	for _, file := range files {
		source, err := os.ReadFile(file)
		must(t, err)
		code.Write(source)
	}
	named := regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(string(text), -1)
	for _, name := range named {
		if !strings.Contains(code.String(), "func "+name+"(t *testing.T)") {
			t.Errorf("docs/interop.md names %s, which does not exist", name)
		}
	}
	for _, f := range regexp.MustCompile(`(?m)^func (Test[A-Z]\w+)\(t `).FindAllStringSubmatch(code.String(), -1) {
		if !slices.Contains(named, f[1]) {
			t.Errorf("docs/interop.md does not say what %s shows", f[1])
		}
	}
}
