package archtest

import (
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// manifest is what this package needs of a go.mod or go.work file.
type manifest struct {
	module   string
	language string            // the go line
	use      []string          // go.work only
	require  map[string]string // path to version
	replace  map[string]string // "path" or "path version" to its target
}

// parse reads the two forms of a directive, on one line and in a block.
func parse(text string) manifest {
	m := manifest{require: map[string]string{}, replace: map[string]string{}}
	block := ""
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "//")
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
			continue
		case words[0] == ")":
			block = ""
			continue
		case len(words) == 2 && words[1] == "(":
			block = words[0]
			continue
		case block != "":
			words = append([]string{block}, words...)
		}
		switch words[0] {
		case "module":
			m.module = words[1]
		case "go":
			m.language = words[1]
		case "use":
			m.use = append(m.use, path.Clean(words[1]))
		case "require":
			m.require[words[1]] = words[2]
		case "replace":
			from, to, _ := strings.Cut(strings.Join(words[1:], " "), " => ")
			m.replace[from] = to
		}
	}
	return m
}

// modules returns every module of the repository by its directory.
func modules(t *testing.T) map[string]manifest {
	t.Helper()
	found := map[string]manifest{}
	if err := walk(func(name string) error {
		if path.Base(name) == "go.mod" {
			found[path.Dir(name)] = parse(read(t, name))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

func TestWorkspaceListsEveryModule(t *testing.T) {
	work := parse(read(t, "go.work"))
	want := slices.Sorted(maps.Keys(modules(t)))
	if got := slices.Sorted(slices.Values(work.use)); !slices.Equal(got, want) {
		t.Errorf("go.work uses %q, the modules are %q", got, want)
	}
	if !exists("go.work.sum") {
		t.Error("go.work.sum is not committed: the first command after cloning would create it")
	}
}

// TestWorkspaceReplaces: before the first release nothing builds unless go.work
// says where our modules are, at the very version that the go.mod files require;
// without a version Go refuses it.
func TestWorkspaceReplaces(t *testing.T) {
	all := modules(t)
	dirs := map[string]string{}
	for dir, m := range all {
		dirs[m.module] = dir
	}
	want := map[string]string{}
	for dir, m := range all {
		for required, version := range m.require {
			target, ours := dirs[required]
			if !ours {
				if _, unknown := directory(required); unknown {
					t.Errorf("%s/go.mod requires %s, which is not here", dir, required)
				}
				continue
			}
			if dir == "." {
				t.Errorf("the root requires %s: it is released first and depends on none of the others", required)
			}
			want[required+" "+version] = path.Clean(target)
		}
	}
	got := parse(read(t, "go.work")).replace
	for from, to := range got {
		got[from] = path.Clean(to)
	}
	if !maps.Equal(got, want) {
		t.Errorf("go.work replaces\n%v\nthe go.mod files ask for\n%v", got, want)
	}
	versions := map[string]string{}
	for from := range want {
		name, version, _ := strings.Cut(from, " ")
		if versions[name] != "" {
			t.Errorf("%s is required at %s and at %s", name, versions[name], version)
		}
		versions[name] = version
	}
}

func TestModuleFiles(t *testing.T) {
	for dir, m := range modules(t) {
		if want := importPath(dir); m.module != want {
			t.Errorf("%s/go.mod is of module %s, want %s", dir, m.module, want)
		}
		language := "1.26.0"
		if dir == "." {
			language = "1.25.0" // the older of the two supported versions of Go
		}
		if m.language != language {
			t.Errorf("%s/go.mod says go %s, want %s", dir, m.language, language)
		}
		if dir == "." || dir == "cmd/pgmutex" {
			if len(m.replace) > 0 {
				t.Errorf("%s/go.mod has a replace: go install refuses it", dir)
			}
			continue
		}
		// The others keep theirs for builds outside the workspace.
		for required := range m.require {
			other, ours := directory(required)
			if !ours {
				continue
			}
			rel, err := filepath.Rel(dir, other)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := m.replace[required], filepath.ToSlash(rel); path.Clean(got) != want {
				t.Errorf("%s/go.mod replaces %s by %q, want %q", dir, required, got, want)
			}
		}
		for from := range m.replace {
			if strings.Contains(from, " ") {
				t.Errorf("%s/go.mod: replace %s has a version, which conflicts with go.work's", dir, from)
			}
		}
	}
	if got := parse(read(t, "go.work")).language; got != "1.26.0" {
		t.Errorf("go.work says go %s, want 1.26.0", got)
	}
}

// TestRootRequiresOnlyPgx: every importer pays for what the root requires.
func TestRootRequiresOnlyPgx(t *testing.T) {
	direct := 0
	for line := range strings.Lines(read(t, "go.mod")) {
		words := strings.Fields(strings.TrimPrefix(line, "require"))
		if len(words) < 2 || !strings.Contains(words[0], "/") || strings.HasSuffix(strings.TrimSpace(line), "// indirect") {
			continue
		}
		if direct++; words[0] != pgx {
			t.Errorf("the root requires %s", words[0])
		}
	}
	if direct != 1 {
		t.Errorf("the root has %d direct requirements, want pgx alone", direct)
	}
}
