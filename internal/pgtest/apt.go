package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// aptInstall installs a Debian package so that nothing of it starts running.
// Test binaries run in parallel: the lock lets one install and the others find
// the package installed.
func aptInstall(ctx context.Context, name string, progress io.Writer) error {
	apt, err := exec.LookPath("apt-get")
	if err != nil || os.Geteuid() != 0 {
		return fmt.Errorf("package %s can only be installed by root with apt-get", name)
	}
	unlock, err := flock(filepath.Join(os.TempDir(), "pgmutex-test-apt.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if exec.CommandContext(ctx, "dpkg", "-s", name).Run() == nil {
		return nil
	}
	if progress != nil {
		fmt.Fprintf(progress, "installing package %s\n", name)
	}

	restore, err := keepServicesDown()
	if err != nil {
		return err
	}
	defer restore()
	for _, args := range [][]string{
		{"update", "-q"},
		{"install", "-q", "-y", "--no-install-recommends", name},
	} {
		cmd := exec.CommandContext(ctx, apt, append([]string{"-o", "DPkg::Lock::Timeout=300"}, args...)...)
		cmd.Env = append(inherited("DEBIAN_FRONTEND"), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w\n%s", args[0], err, bytes.TrimSpace(out))
		}
	}
	return nil
}

// keepServicesDown tells Debian's installation scripts to create no cluster and
// to start no service, where the machine's owner has not decided that already.
func keepServicesDown() (restore func(), err error) {
	if err := os.MkdirAll("/etc/postgresql-common", 0o755); err != nil {
		return nil, err
	}
	// Permanent: it is a configuration file of a package that comes with ours.
	if _, err := create("/etc/postgresql-common/createcluster.conf", "create_main_cluster = false\n", 0o644); err != nil {
		return nil, err
	}
	const policy = "/usr/sbin/policy-rc.d"
	made, err := create(policy, "#!/bin/sh\nexit 101\n", 0o755)
	if err != nil {
		return nil, err
	}
	return func() {
		if made {
			os.Remove(policy)
		}
	}, nil
}

// create writes a file unless there is one.
func create(path, text string, mode fs.FileMode) (made bool, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	_, err = f.WriteString(text)
	return true, errors.Join(err, f.Close())
}
