package pgtest

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// howToInstall ends every error about missing binaries.
const howToInstall = `
Debian, Ubuntu: apt-get install postgresql        (done here when running as root)
Fedora:         dnf install postgresql-server
macOS:          brew install postgresql@17
elsewhere:      PGMUTEX_TEST_PGBIN=DIRECTORY with initdb and postgres in it`

// binaries is the directory with initdb and postgres, and what they are.
type binaries struct {
	dir   string
	major string
}

func (b binaries) path(program string) string { return filepath.Join(b.dir, program) }

// findBinaries looks for the major version ("" for the highest there is) where
// the environment says, then where systems put it, and fetches it last.
func findBinaries(ctx context.Context, major string, who identity, progress io.Writer) (binaries, error) {
	if major == "" {
		major = os.Getenv("PGMUTEX_TEST_PG")
	}
	if dir := os.Getenv("PGMUTEX_TEST_PGBIN"); dir != "" {
		b, err := inspectBinaries(dir)
		if err != nil {
			return binaries{}, fmt.Errorf("PGMUTEX_TEST_PGBIN: %w", err)
		}
		if major == "" || major == b.major {
			return b, nil
		}
	}
	if b, ok := installedBinaries(major); ok {
		return b, nil
	}
	if major != "" {
		return embeddedBinaries(ctx, major, who, progress)
	}
	if err := aptInstall(ctx, "postgresql", progress); err != nil {
		return binaries{}, fmt.Errorf("no PostgreSQL server found: %w%s", err, howToInstall)
	}
	if b, ok := installedBinaries(""); ok {
		return b, nil
	}
	return binaries{}, fmt.Errorf("no PostgreSQL server found, not even after installing package postgresql%s", howToInstall)
}

// installedBinaries returns the wanted major version, or the highest.
func installedBinaries(major string) (binaries, bool) {
	var dirs []string
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",          // Debian and its children
		"/usr/pgsql-*/bin",                   // the project's own RPMs
		"/opt/homebrew/opt/postgresql@*/bin", // Homebrew on ARM
		"/usr/local/opt/postgresql@*/bin",    // Homebrew on Intel
		"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
	} {
		found, _ := filepath.Glob(pattern) // fails for a malformed pattern only
		dirs = append(dirs, found...)
	}
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		dirs = append(dirs, filepath.Dir(path))
	}

	var best binaries
	for _, dir := range dirs {
		b, err := inspectBinaries(dir)
		if err != nil || major != "" && b.major != major {
			continue
		}
		if best.dir == "" || number(b.major) > number(best.major) {
			best = b
		}
	}
	return best, best.dir != ""
}

var versionOutput = regexp.MustCompile(`\) (\d+)`)

// inspectBinaries asks the server program in dir for its version.
func inspectBinaries(dir string) (binaries, error) {
	b := binaries{dir: dir}
	if _, err := os.Stat(b.path("initdb")); err != nil {
		return b, err
	}
	out, err := exec.Command(b.path("postgres"), "--version").Output()
	if err != nil {
		return b, fmt.Errorf("%s --version: %w", b.path("postgres"), err)
	}
	m := versionOutput.FindSubmatch(out)
	if m == nil {
		return b, fmt.Errorf("%s --version: unknown answer %q", b.path("postgres"), out)
	}
	b.major = string(m[1])
	return b, nil
}

func number(s string) int {
	n, _ := strconv.Atoi(s) // 0, the lowest, for what is no number
	return n
}

// inherited is the environment without the variables named, for programs that
// run as ourselves.
func inherited(without ...string) []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(without, name)
	})
}
