//go:build linux || darwin

package local

import (
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

func links(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Nlink) //nolint:unconvert // 16 bits on darwin
	}
	return 1
}

func writable(path string) error {
	return unix.Faccessat(unix.AT_FDCWD, path, unix.R_OK|unix.W_OK, unix.AT_EACCESS)
}
