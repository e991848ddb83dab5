package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// Every command has a page with all its flags and examples, which troff takes
// without a word.
func TestManual(t *testing.T) {
	dir := t.TempDir()
	if err := WriteManual(dir); err != nil {
		t.Fatal(err)
	}
	root := tree()
	for _, c := range append(root.Commands(), root) {
		file := filepath.Join(dir, pageName(c)+".1")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
			continue
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && !strings.Contains(string(text), "\\fB\\-\\-"+roff(f.Name)+"\\fR") {
				t.Errorf("%s: --%s is missing", file, f.Name)
			}
		})
		if !strings.Contains(string(text), roff(c.Example)) || !strings.HasPrefix(string(text), ".TH PGMUTEX") {
			t.Errorf("%s: %s", file, text)
		}
		if _, err := exec.LookPath("groff"); err == nil {
			out, err := exec.Command("groff", "-man", "-ww", "-z", file).CombinedOutput()
			if err != nil || len(out) > 0 {
				t.Errorf("groff: %v\n%s", err, out)
			}
		}
	}
}

func TestRoff(t *testing.T) {
	for text, want := range map[string]string{
		".x\n'y\na-b": "\\&.x\n\\&'y\na\\-b", `a\b`: `a\eb`, "…": `\[u2026]`, "a.b": "a.b",
	} {
		if got := roff(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestCompletionFiles(t *testing.T) {
	dir := t.TempDir()
	if err := WriteCompletions(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"pgmutex.bash", "_pgmutex", "pgmutex.fish"} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.Contains(string(text), "pgmutex") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
