package doctor

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

var fileSystems = map[int64]string{
	0xEF53: "ext4", 0x58465342: "xfs", 0x9123683E: "btrfs", 0x794C7630: "overlay", 0x2FC12FC1: "zfs", 0xF2F52010: "f2fs",
	0xCA451A4E: "bcachefs", unix.TMPFS_MAGIC: "tmpfs", 0x858458F6: "ramfs", 0x6969: "NFS", 0xFF534D42: "CIFS", 0xFE534D42: "SMB2",
	0x01021997: "9p", 0x65735546: "FUSE",
}

// fileSystem names the one that path is on.
func fileSystem(path string) (name string, volatile bool) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return "", false
	}
	number := int64(uint32(st.Type)) // some architectures sign-extend it
	name, known := fileSystems[number]
	if !known {
		name = fmt.Sprintf("type %#x", number)
	}
	return name, name == "tmpfs" || name == "ramfs"
}
