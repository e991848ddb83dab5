package bench

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestResultsAreOfThisHarness: whoever changes what is measured has to measure
// again.
func TestResultsAreOfThisHarness(t *testing.T) {
	text, err := os.ReadFile("RESULTS.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := strings.Split(string(text), "\n## ")[1:]
	if len(sections) < len(rows) {
		t.Fatalf("RESULTS.md has %d sections, the harness %d rows: make bench-peers", len(sections), len(rows))
	}
	for i, r := range rows {
		lines := strings.Split(sections[i], "\n")
		if lines[0] != r.title {
			t.Errorf("section %d of RESULTS.md is %q, want %q: make bench-peers", i+1, lines[0], r.title)
			continue
		}
		if !slices.Contains(lines, r.header()) {
			t.Errorf("%q in RESULTS.md has not the columns %s: make bench-peers", r.title, r.header())
		}
	}
}

// header is the first line of the row's table.
func (r row) header() string {
	names := []string{""}
	for _, c := range r.columns {
		names = append(names, c.name)
	}
	return "| " + strings.Join(names, " | ") + " |"
}
