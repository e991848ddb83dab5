package tests

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestParity: PARITY.md names no test that does not exist, and has one in every row
// of its tables. A row's last cell is a list of directories of the repository with
// tests in them: `advisory` TestCap, TestConn; `enginetest` BusyTry.
func TestParity(t *testing.T) {
	text, err := os.ReadFile("PARITY.md")
	if err != nil {
		t.Fatal(err)
	}
	group := regexp.MustCompile("^`([a-z./]+)` ([A-Za-z_]+(?:, [A-Za-z_]+)*)$")
	declared := map[string][]string{}
	rows := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 5 || strings.TrimSpace(cells[1]) == "reference" || strings.HasPrefix(cells[1], " -") {
			if strings.HasPrefix(line, "|") && len(cells) != 5 {
				t.Errorf("not three cells: %s", line)
			}
			continue
		}
		rows++
		for part := range strings.SplitSeq(strings.TrimSpace(cells[3]), "; ") {
			m := group.FindStringSubmatch(part)
			if m == nil {
				t.Errorf("%s: %q is no directory with names of tests", strings.TrimSpace(cells[1]), part)
				continue
			}
			if declared[m[1]] == nil {
				declared[m[1]] = declaredIn(t, m[1])
			}
			for name := range strings.SplitSeq(m[2], ", ") {
				if !slices.Contains(declared[m[1]], name) {
					t.Errorf("%s: there is no %s in %s", strings.TrimSpace(cells[1]), name, m[1])
				}
			}
		}
	}
	if rows == 0 {
		t.Error("no rows")
	}
}

// declaredIn returns the tests and examples of a directory, or the cases of the
// contract, which are values.
func declaredIn(t *testing.T, dir string) []string {
	t.Helper()
	pattern, declaration := "*_test.go", regexp.MustCompile(`(?m)^func ((?:Test|Example)\w*)\((?:t \*testing\.T)?\)`)
	if dir == "enginetest" {
		pattern, declaration = "*.go", regexp.MustCompile(`(?m)^\t\tname: +"([A-Z]\w*)",$`)
	}
	files, err := filepath.Glob(filepath.Join("..", filepath.FromSlash(dir), pattern))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range declaration.FindAllStringSubmatch(string(source), -1) {
			names[m[1]] = true
		}
	}
	if len(names) == 0 {
		t.Errorf("there are no tests in %s", dir)
	}
	return slices.Collect(maps.Keys(names))
}
