package archtest

import (
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const pgx = "github.com/jackc/pgx/v5"

// A layer is a package and everything that it may import besides the standard
// library, with the reason. Tests are free to import more.
type layer struct {
	dir     string
	ours    []string // directories
	foreign []string // import paths, everything below them included
	reason  string
}

var layers = []layer{
	{"engine", nil, nil,
		"the leaf: whoever writes an engine needs this and nothing else"},
	{"internal/clock", nil, nil,
		"time is read the same way by every engine"},
	{"internal/keeper", []string{"engine"}, nil,
		"renewal and the trust window do no I/O, so that they can be tested in a bubble"},
	{".", []string{"engine", "internal/keeper"}, nil,
		"a program that takes locks pulls in no driver that it does not use"},
	{"memory", []string{".", "engine"}, nil,
		"users' unit tests get no driver through it"},
	{"enginetest", []string{".", "engine"}, nil,
		"who writes an engine is not given our driver"},
	{"internal/pgdb", []string{"engine", "internal/clock"}, []string{pgx},
		"connections know nothing of locks"},
	{"internal/schema", []string{"internal/pgdb"}, []string{pgx},
		"tables know nothing of clients"},
	{"lease", []string{".", "engine", "internal/clock", "internal/pgdb", "internal/schema"}, []string{pgx},
		"an engine is reached by the root only through package engine"},
	{"advisory", []string{".", "engine", "internal/clock", "internal/pgdb", "internal/schema"}, []string{pgx},
		"as lease, and neither engine knows the other"},
	{"internal/pgtest", nil, []string{pgx},
		"a server for tests must not depend on what it tests"},
	{"internal/faultconn", nil, nil,
		"faults happen below every driver"},
	{"internal/contract", []string{".", "engine", "enginetest", "internal/faultconn"}, nil,
		"it serves the tests of every engine, so it can belong to none"},
}

// banned are packages that nobody who is imported may import, directly or through
// our own packages, wherever the rules above would let them.
var banned = []struct{ path, reason string }{
	{pgx + "/stdlib", "it registers database/sql drivers in every program that imports us"},
	{"testing", "it registers flags in every program that imports us"},
}

func TestImports(t *testing.T) {
	packages := imports(t)
	for _, l := range layers {
		t.Run(path.Join("pgmutex", l.dir), func(t *testing.T) {
			used, found := packages[l.dir]
			if !found {
				t.Fatal("there is no such package: the rule has outlived it")
			}
			for name, file := range used {
				dir, ours := directory(name)
				switch {
				case standard(name):
				case ours && slices.Contains(l.ours, dir):
				case !ours && under(name, l.foreign...):
				default:
					t.Errorf("%s imports %s: %s", file, name, l.reason)
				}
			}
			for _, dir := range l.ours {
				if !exists(dir) {
					t.Errorf("the rule allows %s, which does not exist", dir)
				}
			}
		})
	}
}

// TestBannedImports follows our own packages' imports to their ends.
func TestBannedImports(t *testing.T) {
	packages := imports(t)
	for dir := range packages {
		if !library(dir) || under(dir, "enginetest", "internal/pgtest", "internal/faultconn", "internal/contract") {
			continue // these are for tests and use package testing
		}
		for _, b := range banned {
			if via := reach(packages, dir, b.path); via != nil {
				t.Errorf("%s reaches %s: %s", strings.Join(via, " → "), b.path, b.reason)
			}
		}
	}
	for _, b := range banned {
		if out, err := exec.Command("go", "list", b.path).CombinedOutput(); err != nil {
			t.Errorf("%s is banned, but is there such a package? %s", b.path, out)
		}
	}
}

// TestDriverFree says what the layers add up to: no driver in what everybody
// imports.
func TestDriverFree(t *testing.T) {
	packages := imports(t)
	for _, dir := range []string{".", "engine", "internal/keeper", "memory", "enginetest"} {
		if _, ok := packages[dir]; !ok {
			t.Errorf("there is no package %s", dir)
		}
		if via := reach(packages, dir, pgx); via != nil {
			t.Errorf("%s reaches pgx", strings.Join(via, " → "))
		}
	}
}

// TestEveryPackageHasALayer makes a newcomer choose its place.
func TestEveryPackageHasALayer(t *testing.T) {
	for dir := range imports(t) {
		if !library(dir) || moduleOf(dir) != "." || under(dir, "internal/archtest", "adapters") {
			continue
		}
		if !slices.ContainsFunc(layers, func(l layer) bool { return l.dir == dir }) {
			t.Errorf("package %s is not in the list of layers", dir)
		}
	}
}

// TestAdaptersUsePublicPackages: what adapts us to a library of others is written
// the way that users could have written it.
func TestAdaptersUsePublicPackages(t *testing.T) {
	for dir, used := range imports(t) {
		if !under(dir, "adapters") {
			continue
		}
		for name, file := range used {
			if d, ours := directory(name); ours && under(d, "internal") {
				t.Errorf("%s imports %s", file, name)
			}
		}
	}
}

// TestNestedModules: the other modules live on the public API, as users' code
// does. Their tests may start servers and break connections.
func TestNestedModules(t *testing.T) {
	for _, s := range sources(t) {
		if s.module == "." {
			continue
		}
		for _, name := range s.imports {
			dir, ours := directory(name)
			if !ours || !under(dir, "internal") {
				continue
			}
			if s.test && under(dir, "internal/pgtest", "internal/faultconn", "internal/contract") {
				continue
			}
			t.Errorf("%s imports %s", s.path, name)
		}
	}
}

// TestRootTestsAreOutside: an internal test of the root that imports memory would
// be an import cycle, and one that does not would test another surface than the
// users'. export_test.go is the door for what must be seen from outside.
func TestRootTestsAreOutside(t *testing.T) {
	for _, s := range sources(t) {
		if s.dir == "." && s.test && path.Base(s.path) != "export_test.go" && s.syntax.Name.Name != "pgmutex_test" {
			t.Errorf("%s is in package %s, want pgmutex_test", s.path, s.syntax.Name.Name)
		}
	}
}

// imports returns, for every directory with non-test files, what they import, and
// for each import one file that does.
func imports(t *testing.T) map[string]map[string]string {
	t.Helper()
	packages := map[string]map[string]string{}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		if packages[s.dir] == nil {
			packages[s.dir] = map[string]string{}
		}
		for _, name := range s.imports {
			packages[s.dir][name] = s.path
		}
	}
	return packages
}

// reach returns the chain of our directories through which dir imports the target
// or something below it, or nil.
func reach(packages map[string]map[string]string, dir, target string) []string {
	seen := map[string]bool{}
	var visit func(dir string) []string
	visit = func(dir string) []string {
		if seen[dir] {
			return nil
		}
		seen[dir] = true
		for name := range packages[dir] {
			if under(name, target) {
				return []string{dir}
			}
			if d, ours := directory(name); ours {
				if chain := visit(d); chain != nil {
					return append([]string{dir}, chain...)
				}
			}
		}
		return nil
	}
	return visit(dir)
}

// library reports whether the directory's package is imported by programs, as
// opposed to being one.
func library(dir string) bool {
	return !under(dir, "cmd", "internal/demo", "bench", "tests")
}
