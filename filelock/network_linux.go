package filelock

import "syscall"

// networkTypes are the file systems on which a lock may be the client
// machine's alone, or the server's to drop: their numbers are from statfs(2)
// and the kernel's magic.h.
var networkTypes = map[uint32]string{
	0x6969:     "NFS",
	0x517b:     "SMB",
	0xff534d42: "CIFS",
	0xfe534d42: "SMB2",
	0x01021997: "9P",
	0x65735546: "FUSE",
	0x5346414f: "AFS",
	0x6b414653: "AFS",
	0x00c36400: "Ceph",
	0x0bd00bd0: "Lustre",
	0x47504653: "GPFS",
	0x73757245: "Coda",
	0x564c:     "NCP",
	0x7461636f: "OCFS2",
	0x01161970: "GFS2",
	0x19830326: "BeeGFS",
	0xaad7aaea: "PanFS",
	0x786f4256: "vboxsf",
	0xbacbacbc: "vmhgfs",
	0x6a656a63: "virtiofs",
	0x20030528: "OrangeFS",
}

// networkName names the network file system that an open directory is on, ""
// if it is on none that we know.
func networkName(fd int) (string, error) {
	var st syscall.Statfs_t
	if err := syscall.Fstatfs(fd, &st); err != nil {
		return "", err
	}
	return networkTypes[uint32(st.Type)], nil //nolint:gosec // the number has 32 bits; its sign differs by platform
}
