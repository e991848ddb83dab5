//go:build unix

package supervise

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// defaultPath is searched where PATH is not set, as execvp does it.
const defaultPath = "/bin:/usr/bin"

// LookPath finds a command as execvp does, empty and relative elements of PATH
// included. The error matches fs.ErrPermission when there is a file of that
// name that cannot be executed, and otherwise fs.ErrNotExist.
func LookPath(name string) (string, error) {
	switch {
	case name == "":
		return "", fs.ErrNotExist
	case strings.Contains(name, "/"):
		return name, executable(name)
	}
	path, ok := os.LookupEnv("PATH")
	if !ok {
		path = defaultPath
	}
	worst := fs.ErrNotExist
	dirs := filepath.SplitList(path)
	if path == "" {
		dirs = []string{""}
	}
	for _, dir := range dirs {
		if dir == "" {
			dir = "."
		}
		file := dir + "/" + name
		err := executable(file)
		if err == nil {
			return file, nil
		}
		if errors.Is(err, fs.ErrPermission) {
			worst = fs.ErrPermission
		}
	}
	return "", worst
}

func executable(file string) error {
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, unix.ENOTDIR):
		return fs.ErrNotExist
	case errors.Is(err, fs.ErrPermission):
		return fs.ErrPermission
	case err != nil:
		return fs.ErrNotExist
	case info.IsDir(), unix.Access(file, unix.X_OK) != nil:
		return fs.ErrPermission
	}
	return nil
}
