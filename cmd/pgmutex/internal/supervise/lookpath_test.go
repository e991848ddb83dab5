//go:build unix

package supervise

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestLookPath(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, mode fs.FileMode) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	write("a/run", 0o700)
	write("a/data", 0o600)
	write("b/data", 0o700)
	write("here", 0o700)
	t.Chdir(dir)
	t.Setenv("PATH", dir+"/nowhere:"+dir+"/a:"+dir+"/b:")
	for name, want := range map[string]string{
		"run": dir + "/a/run", "data": dir + "/b/data", "here": "./here", "a/run": "a/run", "./here": "./here",
	} {
		if got, err := LookPath(name); got != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
	for name, want := range map[string]error{
		"nosuch": fs.ErrNotExist, "": fs.ErrNotExist, "./nosuch": fs.ErrNotExist, "here/x": fs.ErrNotExist,
		"a/data": fs.ErrPermission, "./a": fs.ErrPermission,
	} {
		if _, err := LookPath(name); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", name, err, want)
		}
	}
	t.Setenv("PATH", dir+"/a")
	if _, err := LookPath("data"); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a file that cannot be executed: %v", err)
	}
	t.Setenv("PATH", "")
	if got, err := LookPath("here"); got != "./here" || err != nil {
		t.Errorf("an empty PATH: %q, %v", got, err)
	}
}
