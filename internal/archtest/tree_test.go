package archtest

import (
	"errors"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// root is the repository, seen from this package's directory.
const root = "../.."

// rootModule is the import path of the repository's root.
const rootModule = "github.com/pgmutex/pgmutex"

var update = flag.Bool("update", false, "write the exported surface to testdata/api")

// A source is one Go file of the repository.
type source struct {
	path    string // slash-separated, from the root of the repository
	dir     string // its directory, "." for the root
	module  string // the directory of its module, "." for the root's
	test    bool
	syntax  *ast.File
	lines   int
	imports []string
}

// tree is every Go file of the repository, read once.
var tree = sync.OnceValues(func() ([]source, error) {
	var all []source
	fset := token.NewFileSet()
	err := walk(func(name string) error {
		if path.Ext(name) != ".go" {
			return nil
		}
		file := filepath.Join(root, filepath.FromSlash(name))
		syntax, err := parser.ParseFile(fset, file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		s := source{
			path:   name,
			dir:    path.Dir(name),
			module: moduleOf(path.Dir(name)),
			test:   strings.HasSuffix(name, "_test.go"),
			syntax: syntax,
			lines:  fset.Position(syntax.FileEnd).Line - 1,
		}
		for _, i := range syntax.Imports {
			s.imports = append(s.imports, strings.Trim(i.Path.Value, `"`))
		}
		all = append(all, s)
		return nil
	})
	return all, err
})

// walk calls visit for every file that belongs to the repository, by its
// slash-separated path. It does not ask git, which a downloaded module has not.
func walk(visit func(name string) error) error {
	return filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		base := path.Base(name)
		if d.IsDir() {
			if name != "." && (base == ".git" || base == "bin" || strings.HasPrefix(base, "_")) {
				return filepath.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() || strings.HasPrefix(base, "_") {
			return nil
		}
		return visit(name)
	})
}

// moduleOf returns the directory of the module that dir belongs to.
func moduleOf(dir string) string {
	for dir != "." {
		if exists(path.Join(dir, "go.mod")) {
			return dir
		}
		dir = path.Dir(dir)
	}
	return "."
}

// exists reports whether the repository has name.
func exists(name string) bool {
	_, err := os.Stat(filepath.Join(root, filepath.FromSlash(name)))
	return !errors.Is(err, fs.ErrNotExist)
}

// read returns a file of the repository.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// sources returns the repository's Go files.
func sources(t *testing.T) []source {
	t.Helper()
	all, err := tree()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// under reports whether dir is one of the directories or lies below one.
func under(dir string, dirs ...string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool {
		return dir == d || strings.HasPrefix(dir, d+"/")
	})
}

// importPath is the import path of a directory, and directory its inverse.
func importPath(dir string) string { return path.Join(rootModule, dir) }

func directory(importPath string) (dir string, ours bool) {
	if importPath == rootModule {
		return ".", true
	}
	return strings.CutPrefix(importPath, rootModule+"/")
}

// standard reports whether an import path is of the standard library.
func standard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}
