//go:build !linux && !darwin

package local

import (
	"errors"
	"fmt"
	"runtime"
)

// supported says whether this system tells its boot and the time since then.
const supported = false

// checkFileSystem refuses all of them.
func checkFileSystem(path string) error {
	return fmt.Errorf("local: %s: there is no local store on %s: %w", path, runtime.GOOS, errors.ErrUnsupported)
}
