package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/pgmutex/pgmutex"
	"github.com/pgmutex/pgmutex/engine"
)

// Options are the settings of the engine. A nil *Options is fine, and a zero
// field means its default.
type Options struct {
	// AnyFileSystem lifts the refusal of network and user-space file systems.
	// It vouches that all processes on the file run on this very kernel, and
	// that the file system has POSIX locks and shared memory.
	AnyFileSystem bool
}

// Open returns a client on the store in the file at path, DefaultPath's where
// path is empty. It is pgmutex.New with the default engine settings.
//
// Unlike an Open on PostgreSQL it creates what is missing: the file, and for
// DefaultPath its directory. With Options.Lazy, the first use does. On failure
// nothing is left open; the error names the path, and matches fs.ErrPermission
// where rights are missing.
func Open(ctx context.Context, path string, opts *pgmutex.Options) (*pgmutex.Client, error) {
	e, err := New(path, nil)
	if err != nil {
		return nil, err
	}
	return pgmutex.New(ctx, e, opts)
}

// New returns an engine for the store in the file at path, DefaultPath's where
// path is empty, for pgmutex.New. It does no I/O. Each client needs an engine of
// its own.
func New(path string, opts *Options) (engine.Engine, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	ours := path == ""
	if ours {
		var err error
		if path, err = DefaultPath(); err != nil {
			return nil, err
		}
	}
	if strings.ContainsRune(path, 0) {
		return nil, fmt.Errorf("local: the path %q contains a zero byte", path)
	}
	// The path must mean the same after a change of directory.
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("local: %s: %w", path, err)
	}
	e := newProcess(abs, o, thisMachine())
	e.makeDir = ours
	return e, nil
}

// DefaultPath returns the path of this user's own store, which is not created:
// pgmutex/locks.db in $XDG_STATE_HOME, which is ~/.local/state if it is not set
// or not absolute; on macOS in ~/Library/Application Support. It fails where
// that needs HOME and HOME is not set.
func DefaultPath() (string, error) {
	return defaultPath(runtime.GOOS, os.Getenv)
}

func defaultPath(goos string, getenv func(string) string) (string, error) {
	state := ""
	if goos != "darwin" {
		state = getenv("XDG_STATE_HOME")
	}
	if !filepath.IsAbs(state) { // the XDG rule: anything else is to be ignored
		home := getenv("HOME")
		switch {
		case home == "":
			return "", errors.New("local: HOME is not set, so there is no default path for the lock file: set HOME or name a path")
		case !filepath.IsAbs(home):
			return "", fmt.Errorf("local: HOME is %q, which is not absolute, so there is no default path for the lock file: correct HOME or name a path", home)
		case goos == "darwin":
			state = filepath.Join(home, "Library", "Application Support")
		default:
			state = filepath.Join(home, ".local", "state")
		}
	}
	return filepath.Join(state, "pgmutex", "locks.db"), nil
}
