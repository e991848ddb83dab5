package archtest

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestImportersGetPgxAlone makes a program that imports all public packages and
// looks at its go.mod: besides us it has pgx and what pgx's packages need.
func TestImportersGetPgxAlone(t *testing.T) {
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	sums := read(t, "go.sum")
	pgxVersion := parse(read(t, "go.mod")).require[pgx]
	var ours []string
	for _, dir := range public {
		ours = append(ours, importPath(dir))
	}

	got := requiredBy(t, ours, sums, fmt.Sprintf("require %s v0.1.0\nreplace %s => %q\n", rootModule, rootModule, here))
	if !slices.Contains(got, rootModule) {
		t.Errorf("the program does not require us: %q", got)
	}
	got = slices.DeleteFunc(got, func(m string) bool { return m == rootModule })
	// Of what we may import of pgx, the pool needs most.
	want := requiredBy(t, []string{pgx, pgx + "/pgxpool"}, sums, "require "+pgx+" "+pgxVersion+"\n")
	if len(want) < 2 || !slices.Contains(want, pgx) {
		t.Fatalf("a program with pgx requires %q", want)
	}
	if !slices.Equal(got, want) {
		t.Errorf("importing us requires\n%q, importing pgx alone\n%q", got, want)
	}
	if in := slices.Sorted(maps.Keys(parse(read(t, "go.mod")).require)); !slices.Equal(in, want) {
		t.Errorf("go.mod requires\n%q, importing pgx alone\n%q", in, want)
	}
}

// requiredBy makes a module whose program imports packages, lets Go complete the
// go.mod, and returns what it requires then.
func requiredBy(t *testing.T, packages []string, sums, directives string) []string {
	t.Helper()
	dir := t.TempDir()
	var program strings.Builder
	program.WriteString("package main\n\n")
	for _, p := range packages {
		fmt.Fprintf(&program, "import _ %q\n", p)
	}
	program.WriteString("\nfunc main() {}\n")
	for name, text := range map[string]string{
		"go.mod":  "module user.example\n\ngo 1.25.0\n\n" + directives,
		"go.sum":  sums,
		"main.go": program.String(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list := exec.Command("go", "list", "-mod=mod", "-deps", ".")
	list.Dir = dir
	list.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	if out, err := list.CombinedOutput(); err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(parse(string(text)).require))
}
