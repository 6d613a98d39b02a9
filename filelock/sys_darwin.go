package filelock

import (
	"errors"
	"syscall"
)

// The commands of fcntl(2) for locks of open file descriptions. XNU has had
// them since macOS 10.15, but package syscall does not name them.
const (
	setLock     = 90
	setLockWait = 91
	getLock     = 92
)

func fcntlNow(fd, cmd int, lk *syscall.Flock_t) syscall.Errno {
	var errno syscall.Errno
	if err := syscall.FcntlFlock(uintptr(fd), cmd, lk); errors.As(err, &errno) {
		return errno
	}
	return 0
}

// The calls below go by path, since package syscall has no others there.

func openAt(d *directory, name string, flags int, mode uint32) (int, error) {
	return syscall.Open(d.path+"/"+name, flags|syscall.O_CLOEXEC|syscall.O_NOFOLLOW, mode)
}

func statAt(d *directory, name string, st *syscall.Stat_t) error {
	return syscall.Lstat(d.path+"/"+name, st)
}

func unlinkAt(d *directory, name string) error { return syscall.Unlink(d.path + "/" + name) }

func renameAt(d *directory, from, to string) error {
	return syscall.Rename(d.path+"/"+from, d.path+"/"+to)
}

func keepFromCleaners(int) {}

func modTime(st *syscall.Stat_t) int64 { return st.Mtimespec.Nano() }

// duplicate returns another descriptor of the same open file description.
func duplicate(fd int) (int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	dup, err := syscall.Dup(fd)
	if err == nil {
		syscall.CloseOnExec(dup)
	}
	return dup, err
}
