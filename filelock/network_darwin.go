package filelock

import "syscall"

const mntLocal = 0x1000

// networkName names the network file system that an open directory is on, ""
// if it is on none.
func networkName(fd int) (string, error) {
	var st syscall.Statfs_t
	if err := syscall.Fstatfs(fd, &st); err != nil || st.Flags&mntLocal != 0 {
		return "", err
	}
	var name []byte
	for _, c := range st.Fstypename {
		if c == 0 {
			break
		}
		name = append(name, byte(c))
	}
	return string(name), nil
}
