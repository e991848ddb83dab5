package doctor

import "golang.org/x/sys/unix"

func bootID() string {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return id
}

// fileSystem names the one that path is on.
func fileSystem(path string) (name string, volatile bool) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return "", false
	}
	name = unix.ByteSliceToString(st.Fstypename[:])
	return name, name == "tmpfs"
}
