package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// releaseFile is what the tests look at of .goreleaser.yaml.
type releaseFile struct {
	Before struct{ Hooks []string }
	Builds []struct {
		Dir, Main           string
		Env, Flags, Ldflags []string
		Goos, Goarch        []string
	}
	Archives []struct{ Formats, Files []string }
	Nfpms    []struct {
		Formats  []string
		Contents []struct{ Src, Dst, Type string }
	}
}

func readReleaseFile(t *testing.T) (f releaseFile) {
	t.Helper()
	text, err := os.ReadFile("../../.goreleaser.yaml")
	pgtest.Must(t, err)
	pgtest.Must(t, yaml.Unmarshal(text, &f))
	return f
}

// A release has archives, deb and rpm for the systems and processors that we name,
// and everything that goes into them is there.
func TestReleaseFile(t *testing.T) {
	f := readReleaseFile(t)
	if len(f.Builds) != 1 || len(f.Archives) != 1 || len(f.Nfpms) != 1 {
		t.Fatalf("%+v", f)
	}
	b := f.Builds[0]
	for _, list := range []struct{ got, want []string }{
		{b.Goos, []string{"linux", "darwin"}}, {b.Goarch, []string{"amd64", "arm64"}}, {b.Env, []string{"CGO_ENABLED=0"}},
		{b.Flags, []string{"-trimpath"}}, {f.Archives[0].Formats, []string{"tar.gz"}}, {f.Nfpms[0].Formats, []string{"deb", "rpm"}},
		{f.Before.Hooks, []string{"make man"}}, {[]string{b.Dir, b.Main}, []string{"cmd/pgmutex", "."}},
	} {
		if !slices.Equal(list.got, list.want) {
			t.Errorf("%q, want %q", list.got, list.want)
		}
	}
	made := t.TempDir() // what the hook makes in bin
	if out, err := exec.Command("go", "run", "./internal/extras", made).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	sources := f.Archives[0].Files
	for _, c := range f.Nfpms[0].Contents {
		sources = append(sources, c.Src)
		if !strings.HasPrefix(c.Dst, "/usr/share/") {
			t.Errorf("%s goes to %s", c.Src, c.Dst)
		}
	}
	for _, source := range sources {
		file := filepath.Join("../..", source)
		if rest, ok := strings.CutPrefix(source, "bin/"); ok {
			file = filepath.Join(made, rest)
		}
		if found, err := filepath.Glob(strings.ReplaceAll(file, "**", "*")); err != nil || len(found) == 0 {
			t.Errorf("there is no %s", source)
		}
	}
	if _, err := exec.LookPath("goreleaser"); err == nil {
		check := exec.Command("goreleaser", "check")
		check.Dir = "../.."
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("goreleaser check: %v\n%s", err, out)
		}
	}
}

// The released program is stripped, small, and knows its version. It is linked
// here from what the other tests have compiled, with cgo where they have it:
// without it the program is smaller still.
func TestReleasedProgram(t *testing.T) {
	if raceDetector {
		t.Skip("the same without the race detector")
	}
	const limit = 30 << 20
	flags := strings.ReplaceAll(strings.Join(readReleaseFile(t).Builds[0].Ldflags, " "), "{{ .Version }}", "1.2.3")
	file := filepath.Join(t.TempDir(), "pgmutex")
	if out, err := exec.Command("go", "build", "-ldflags", flags, "-o", file, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	info, err := os.Stat(file)
	pgtest.Must(t, err)
	t.Logf("%.1f MiB", float64(info.Size())/(1<<20))
	if info.Size() > limit {
		t.Errorf("the program has %d bytes, of %d", info.Size(), limit)
	}
	if out, _ := exec.Command("go", "tool", "nm", file).CombinedOutput(); !strings.Contains(string(out), "no symbol") {
		t.Errorf("the program is not stripped: %.200s", out)
	}
	out, err := exec.Command(file, "--version").Output()
	pgtest.Must(t, err)
	if !regexp.MustCompile(`^pgmutex v1\.2\.3 go1`).Match(out) {
		t.Errorf("version: %s", out)
	}
}

// The example for Kubernetes is YAML of the form that it has to have.
func TestCronJobIsYAML(t *testing.T) {
	text, err := os.ReadFile("../../deploy/kubernetes/cronjob.yaml")
	pgtest.Must(t, err)
	var job struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Spec       struct {
			JobTemplate struct {
				Spec struct {
					Template struct {
						Spec struct {
							Containers []struct {
								Command, Args []string
								Env           []struct{ Name string }
							}
						}
					}
				}
			} `yaml:"jobTemplate"`
		}
	}
	pgtest.Must(t, yaml.Unmarshal(text, &job))
	containers := job.Spec.JobTemplate.Spec.Template.Spec.Containers
	if job.APIVersion != "batch/v1" || job.Kind != "CronJob" || len(containers) != 1 ||
		containers[0].Command[0] != "pgmutex" || len(containers[0].Args) == 0 || containers[0].Env[0].Name != "PGMUTEX_URL" {
		t.Errorf("%+v", job)
	}
}
