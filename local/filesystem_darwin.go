package local

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// supported says whether this system tells its boot and the time since then.
const supported = true

// checkFileSystem refuses those on which two machines may see the same file.
func checkFileSystem(path string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return fmt.Errorf("local: %s: cannot tell its file system: %w", path, err)
	}
	name := unix.ByteSliceToString(st.Fstypename[:])
	switch name {
	case "nfs", "smbfs", "afpfs", "webdav", "ftp", "macfuse", "osxfuse", "fusefs", "virtiofs", "9p", "AppleVirtIOFS":
		return remoteError(path, name)
	}
	if st.Flags&unix.MNT_LOCAL == 0 {
		return remoteError(path, name)
	}
	return nil
}
