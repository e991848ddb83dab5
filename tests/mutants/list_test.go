package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a mutant changes moves with the code; to find that out takes no mutants.
func TestMutantsApply(t *testing.T) {
	for _, m := range mutants {
		texts := map[string]string{}
		for _, e := range m.edits {
			text, ok := texts[e.file]
			if !ok {
				raw, err := os.ReadFile(filepath.Join("..", "..", e.file))
				if err != nil {
					t.Fatal(err)
				}
				text = string(raw)
			}
			if n := strings.Count(text, e.old); n != 1 {
				t.Errorf("%s: %s has %d times %q", m.name, e.file, n, e.old)
			}
			texts[e.file] = strings.Replace(text, e.old, e.mutated, 1)
		}
	}
}
