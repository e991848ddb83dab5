package tests

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestNamedTests: the documents that say which test shows what name no test that
// does not exist. A test is named after its directory: `lease` TestOneWinner,
// TestDisown. Each row of a table that has a column for tests names one.
func TestNamedTests(t *testing.T) {
	group := regexp.MustCompile("`([a-z][a-z/]*|\\.)` ([A-Z]\\w*(?:, [A-Z]\\w*)*)")
	declared := map[string][]string{}
	for _, file := range []string{"../docs/loss-and-safety.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		named, header := 0, ""
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			found := group.FindAllStringSubmatch(line, -1)
			switch {
			case !strings.HasPrefix(line, "|"):
				header = ""
			case header == "":
				header = line
			case strings.HasPrefix(line, "| -"):
			case len(found) == 0 && (strings.HasSuffix(header, "tests |") || strings.HasSuffix(header, "shown by |")):
				t.Errorf("%s: no test in %s", file, line)
			}
			for _, m := range found {
				if declared[m[1]] == nil {
					declared[m[1]] = declaredIn(t, m[1])
				}
				for name := range strings.SplitSeq(m[2], ", ") {
					named++
					if !slices.Contains(declared[m[1]], name) {
						t.Errorf("%s: there is no %s in %s", file, name, m[1])
					}
				}
			}
		}
		if named == 0 {
			t.Errorf("%s names no test", file)
		}
	}
}
