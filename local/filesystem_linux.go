package local

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// remote lists file systems by the number that statfs tells, with the name to
// show. FUSE is among them, since what is behind it cannot be told: sshfs and
// the shared folders of virtual machines are.
var remote = map[int64]string{
	0x6969:     "NFS",
	0x517B:     "SMB",
	0xFF534D42: "CIFS",
	0xFE534D42: "SMB2",
	0x01021997: "9p",
	0x65735546: "FUSE",
	0x00C36400: "Ceph",
	0x0BD00BD0: "Lustre",
	0x01161970: "GFS2",
	0x7461636F: "OCFS2",
	0x47504653: "GPFS",
	0x61636673: "ACFS",
	0x19830326: "BeeGFS",
	0x20030528: "OrangeFS",
	0xAAD7AAEA: "PanFS",
	0x5346414F: "AFS",
	0x6B414653: "AFS",
	0x73757245: "Coda",
	0x564C:     "NCP",
	0x786F4256: "VirtualBox shared folder",
	0xBACBACBC: "VMware shared folder",
}

// supported says whether this system tells its boot and the time since then.
const supported = true

// checkFileSystem refuses those on which two machines may see the same file.
func checkFileSystem(path string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return fmt.Errorf("local: %s: cannot tell its file system: %w", path, err)
	}
	// The field's type differs between architectures; some sign-extend it.
	if name, ok := remote[int64(uint32(st.Type))]; ok {
		return remoteError(path, name)
	}
	return nil
}
