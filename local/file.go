package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// opening is held while a file is created or opened. The creating descriptor
// has to be closed again, and closing any descriptor of a file drops all locks
// that the process has on it: no other client of this process may have it open
// by then.
var opening sync.Mutex

// prepare makes sure that there is a file which may hold the store, and returns
// what it is. Called with opening held.
func (p *process) prepare() (fs.FileInfo, error) {
	check := p.host.check
	if p.opts.AnyFileSystem && supported {
		check = func(string) error { return nil }
	}
	if p.makeDir {
		if err := os.MkdirAll(filepath.Dir(p.path), 0o700); err != nil {
			return nil, fmt.Errorf("local: cannot make the directory of the lock file: %w", err)
		}
	}
	info, err := os.Stat(p.path)
	if errors.Is(err, fs.ErrNotExist) {
		// Looked at before anything is created there.
		dir := filepath.Dir(p.path)
		if _, err := os.Stat(dir); err != nil {
			return nil, fmt.Errorf("local: %s: the directory of the lock file has to exist: %w", p.path, err)
		}
		if err := check(dir); err != nil {
			return nil, err
		}
		if err := create(p.path); err != nil {
			return nil, fmt.Errorf("local: cannot create the lock file: %w", err)
		}
		info, err = os.Stat(p.path)
	}
	if err != nil {
		return nil, fmt.Errorf("local: cannot use the lock file: %w", err)
	}
	switch {
	case info.IsDir():
		return nil, fmt.Errorf("local: %s is a directory: the store is a file", p.path)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("local: %s is not a regular file (%s): the store is one", p.path, info.Mode().Type())
	case links(info) > 1:
		return nil, fmt.Errorf("local: %s has several hard links: processes that open it by different names would not exclude each other", p.path)
	}
	if err := check(p.path); err != nil {
		return nil, err
	}
	if err := writable(p.path); err != nil {
		return nil, fmt.Errorf("local: %s is not writable: whoever holds or looks at locks needs to write to it: %w", p.path, err)
	}
	real, err := filepath.EvalSymlinks(p.path)
	if err != nil {
		return nil, fmt.Errorf("local: cannot use the lock file: %w", err)
	}
	if err := writable(filepath.Dir(real)); err != nil {
		return nil, fmt.Errorf("local: the directory of %s is not writable: the store keeps two more files there: %w", p.path, err)
	}
	return info, nil
}

// create makes an empty file, unless there is one.
func create(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}

func remoteError(path, name string) error {
	return fmt.Errorf("local: %s is on a network or shared file system (%s): the store excludes the processes of one machine only and needs a local disk", path, name)
}
