package archtest

import (
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestFileLength keeps a file to what one can hold in one's head.
func TestFileLength(t *testing.T) {
	for _, s := range sources(t) {
		if s.lines > 500 {
			t.Errorf("%s has %d lines, of 500", s.path, s.lines)
		}
	}
}

// TestReadme: a visitor sees a program before having to scroll.
func TestReadme(t *testing.T) {
	lines := strings.Split(read(t, "README.md"), "\n")
	if len(lines) > 201 {
		t.Errorf("README.md has %d lines, of 200", len(lines)-1)
	}
	fence := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "```go") })
	if fence < 0 || fence >= 20 {
		t.Errorf("the first Go program of README.md begins at line %d, want one by line 20", fence+1)
	}
}

// A library leaves alone what belongs to the program that imports it.
var reserved = map[string]string{
	"fmt.Print":   "standard output is the program's",
	"fmt.Printf":  "standard output is the program's",
	"fmt.Println": "standard output is the program's",
	"os.Stdout":   "standard output is the program's",
	"os.Stderr":   "standard error is the program's",
	"os.Exit":     "ending the process is the program's decision",
	"log.*":       "the global logger is the program's; ours is a slog.Logger in the options",
	"flag.*":      "the command line is the program's",
}

// TestLibraryKeepsItsHandsOff also asks for packages without init: what runs at
// import is global state.
func TestLibraryKeepsItsHandsOff(t *testing.T) {
	for _, s := range sources(t) {
		// The test server ends its own test binary and is linked into no other.
		if s.test || !library(s.dir) || s.dir == "internal/pgtest" {
			continue
		}
		names := importNames(s.syntax)
		for _, d := range s.syntax.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s has a func init", s.path)
			}
		}
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				x, ok := n.X.(*ast.Ident)
				if !ok || names[x.Name] == "" {
					break
				}
				for _, name := range []string{n.Sel.Name, "*"} {
					if reason, found := reserved[names[x.Name]+"."+name]; found {
						t.Errorf("%s uses %s.%s: %s", s.path, x.Name, n.Sel.Name, reason)
					}
				}
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.Ident); ok && (f.Name == "print" || f.Name == "println") {
					t.Errorf("%s calls %s: standard error is the program's", s.path, f.Name)
				}
			}
			return true
		})
	}
}

// importNames maps the names under which a file knows packages to their paths.
func importNames(f *ast.File) map[string]string {
	names := map[string]string{}
	for _, i := range f.Imports {
		p := strings.Trim(i.Path.Value, `"`)
		name := path.Base(p)
		if i.Name != nil {
			name = i.Name.Name
		}
		names[name] = p
	}
	return names
}

// private are traces of the machine that somebody works on.
var private = []*regexp.Regexp{
	regexp.MustCompile(`(^|[\s"'(=:` + "`" + `])/(home|Users|root|work)/[\w.-]+`),
	regexp.MustCompile(`https?://[\w.-]+\.(internal|corp|lan|intranet)\b`),
	regexp.MustCompile(`https?://[\w.-]*(artifactory|nexus)[\w.-]*`),
}

// TestNoPrivatePaths: what is published names no directory and no host of ours.
func TestNoPrivatePaths(t *testing.T) {
	const linuxbrew = "/home/linuxbrew/" // the same on every machine that has it
	if err := walk(func(name string) error {
		text := read(t, name)
		if strings.Contains(text[:min(len(text), 8000)], "\x00") {
			return nil // not a text
		}
		number := 0
		for line := range strings.Lines(text) {
			number++
			line = strings.ReplaceAll(line, linuxbrew, "")
			for _, p := range private {
				if found := p.FindString(line); found != "" {
					t.Errorf("%s:%d: %q", name, number, strings.TrimSpace(found))
				}
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
