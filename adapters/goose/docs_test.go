package goose_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDocumentation: what docs/adapters.md shows is, line by line, part of an
// example that is compiled.
func TestDocumentation(t *testing.T) {
	files, err := filepath.Glob("../*/example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("../*/*/example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var examples strings.Builder
	for _, f := range append(files, more...) {
		examples.WriteString(flat(t, f))
	}
	blocks := strings.Split(flat(t, "../../docs/adapters.md"), "```go\n")[1:]
	if len(blocks) < 4 {
		t.Errorf("%d pieces of code, want one for each adapter", len(blocks))
	}
	for _, b := range blocks {
		code, _, _ := strings.Cut(b, "```")
		if !strings.Contains(examples.String(), code) {
			t.Errorf("not in any example:\n%s", code)
		}
	}
}

// flat reads a file without its indentation.
func flat(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		b.WriteString(strings.TrimLeft(line, " \t"))
	}
	return b.String()
}
