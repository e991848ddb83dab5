package archtest

import (
	"bytes"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// public are the packages that users import.
var public = []string{".", "engine", "enginetest", "lease", "memory", "advisory"}

// TestExportedSurface compares what users can see with a file that a reviewer
// reads: whatever changes there is a promise made or broken. "make api" accepts
// the present surface.
func TestExportedSurface(t *testing.T) {
	for _, dir := range public {
		name := path.Base(importPath(dir))
		golden := filepath.Join("testdata", "api", name+".txt")
		t.Run(name, func(t *testing.T) {
			got := surface(t, dir)
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range difference(string(want), got) {
				t.Error(line)
			}
			if t.Failed() {
				t.Error(`if that is meant: "make api", and a line in CHANGELOG.md`)
			}
		})
	}
}

// surface renders a package's exported declarations without comments, in the
// order of their names.
func surface(t *testing.T, dir string) string {
	t.Helper()
	fset := token.NewFileSet()
	var files []*ast.File
	for _, s := range sources(t) {
		if s.dir != dir || s.test {
			continue
		}
		// A syntax tree of its own: package doc takes it apart.
		f, err := parser.ParseFile(fset, filepath.Join(root, s.path), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	if len(files) == 0 {
		t.Fatalf("there is no package %s", dir)
	}
	p, err := doc.NewFromFiles(fset, files, importPath(dir))
	if err != nil {
		t.Fatal(err)
	}

	var out []string
	add := func(decl ast.Node) { out = append(out, render(t, fset, decl)) }
	values := func(all []*doc.Value) {
		for _, v := range all {
			add(v.Decl)
		}
	}
	funcs := func(all []*doc.Func) {
		for _, f := range all {
			f.Decl.Body = nil
			add(f.Decl)
		}
	}
	values(p.Consts)
	values(p.Vars)
	funcs(p.Funcs)
	for _, t := range p.Types {
		add(t.Decl)
		values(t.Consts)
		values(t.Vars)
		funcs(t.Funcs)
		funcs(t.Methods)
	}
	return "package " + p.Name + "\n\n" + strings.Join(out, "\n") + "\n"
}

var (
	blankLines = regexp.MustCompile(`\n\s*\n`)
	alignment  = regexp.MustCompile(`(\S)[ \t]+`)
)

// render prints a declaration so that nothing but its meaning changes the text:
// comments move blank lines and the alignment of columns.
func render(t *testing.T, fset *token.FileSet, decl ast.Node) string {
	t.Helper()
	ast.Inspect(decl, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GenDecl:
			n.Doc = nil
		case *ast.FuncDecl:
			n.Doc = nil
		case *ast.Field:
			n.Doc, n.Comment = nil, nil
		case *ast.TypeSpec:
			n.Doc, n.Comment = nil, nil
		case *ast.ValueSpec:
			n.Doc, n.Comment = nil, nil
		}
		return true
	})
	var b bytes.Buffer
	if err := (&printer.Config{Mode: printer.TabIndent, Tabwidth: 8}).Fprint(&b, fset, decl); err != nil {
		t.Fatal(err)
	}
	text := blankLines.ReplaceAllString(b.String(), "\n")
	return alignment.ReplaceAllString(text, "$1 ")
}

// difference lists the lines that only one of the texts has, with a sign before
// each. Order does not count: it follows from the names.
func difference(want, got string) []string {
	count := map[string]int{}
	for line := range strings.Lines(got) {
		count[line]++
	}
	var out []string
	for line := range strings.Lines(want) {
		if count[line]--; count[line] < 0 {
			out = append(out, "- "+strings.TrimRight(line, "\n"))
		}
	}
	for line := range strings.Lines(got) {
		if count[line] > 0 {
			count[line]--
			out = append(out, "+ "+strings.TrimRight(line, "\n"))
		}
	}
	if len(out) == 0 && want != got {
		out = append(out, "the same lines in another order")
	}
	return out
}
