//go:build interop

package interop

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// packages are what pip installs. The two that we share with are pinned: their
// behaviour is what the tests are about.
var packages = []string{
	"postgres-mutex==0.1.0",
	"psycopg[binary,pool]>=3.1",
	"eventsource-py==0.8.1",
	"sqlalchemy[asyncio]>=2", // which eventsource-py imports
	"asyncpg",
}

// works is run before a virtual environment is trusted: the Python below it may
// have been replaced since.
const works = "import postgres_mutex, psycopg, psycopg_pool, asyncpg, eventsource.adapters.postgresql.locks"

const installBound = 10 * time.Minute

var environment = sync.OnceValues(func() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), installBound)
	defer cancel()
	python, err := virtualEnvironment(ctx)
	if err != nil {
		err = fmt.Errorf("these tests run the real Python packages %s and need python3 (3.11 or newer) with venv, "+
			"and the Python package index the first time: %w", strings.Join(packages, ", "), err)
	}
	return python, err
})

// python returns the interpreter that has the packages.
func python(t testing.TB) string {
	t.Helper()
	path, err := environment()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// virtualEnvironment makes the environment, or finds the one that was made
// before. Processes that come at the same time wait for the first.
func virtualEnvironment(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "pgmutex-test")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	unlock, err := flock(filepath.Join(cache, "lock-python"))
	if err != nil {
		return "", err
	}
	defer unlock()

	sum := sha256.Sum256([]byte(strings.Join(packages, "\n")))
	home := filepath.Join(cache, "python-"+hex.EncodeToString(sum[:6]))
	python := filepath.Join(home, "bin", "python")
	if run(ctx, python, "-c", works) == nil {
		return python, nil
	}
	if err := os.RemoveAll(home); err != nil { // what was cut off, or no longer works
		return "", err
	}
	base, err := basePython(ctx)
	if err != nil {
		return "", err
	}
	if err := run(ctx, base, "-m", "venv", home); err != nil {
		return "", err
	}
	if err := run(ctx, python, append([]string{"-m", "pip", "install", "--quiet", "--disable-pip-version-check"}, packages...)...); err != nil {
		return "", err
	}
	return python, run(ctx, python, "-c", works)
}

// basePython finds a Python that can make environments, and installs it where
// that is possible: Debian has venv in a package of its own.
func basePython(ctx context.Context) (string, error) {
	const able = "import sys, venv, ensurepip; sys.exit(None if sys.version_info >= (3, 11) else 'Python %d.%d is too old' % sys.version_info[:2])"
	err := run(ctx, "python3", "-c", able)
	if err == nil {
		return "python3", nil
	}
	apt, missing := exec.LookPath("apt-get")
	if missing != nil || os.Geteuid() != 0 {
		return "", err
	}
	wait := []string{"-o", "DPkg::Lock::Timeout=300"}
	err = errors.Join(
		run(ctx, apt, append(wait, "update", "-q")...),
		run(ctx, apt, append(wait, "install", "-q", "-y", "--no-install-recommends", "python3-venv")...),
	)
	if err != nil {
		return "", err
	}
	// Another Python may stand before Debian's in the search path.
	if run(ctx, "python3", "-c", able) == nil {
		return "python3", nil
	}
	return "/usr/bin/python3", run(ctx, "/usr/bin/python3", "-c", able)
}

// run runs a program to its end. The error carries what it said.
func run(ctx context.Context, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", filepath.Base(program), strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// flock waits for the exclusive lock on the file at path. The file stays:
// removing it would let two owners in.
func flock(path string) (release func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return func() { f.Close() }, nil
}
