package filelock

import (
	"syscall"
	"unsafe"
)

// The commands of fcntl(2) for locks of open file descriptions.
const (
	getLock     = 36
	setLock     = 37
	setLockWait = 38
)

const oPath = 0x200000

// fcntlNow is for calls that wait for no lock. On a file system of this machine
// they return at once and need not tell the scheduler, which would cost a fifth
// of the call. On a network's they wait for a server: a thread that is held up
// without the scheduler's knowledge holds up every goroutine with the next
// garbage collection.
func fcntlNow(fd, cmd int, lk *syscall.Flock_t) syscall.Errno {
	if locksMayHang.Load() {
		_, _, errno := syscall.Syscall(sysFcntl, uintptr(fd), uintptr(cmd), uintptr(unsafe.Pointer(lk)))
		return errno
	}
	_, _, errno := syscall.RawSyscall(sysFcntl, uintptr(fd), uintptr(cmd), uintptr(unsafe.Pointer(lk)))
	return errno
}

func openAt(d *directory, name string, flags int, mode uint32) (int, error) {
	for {
		fd, err := syscall.Openat(d.fd, name, flags|syscall.O_CLOEXEC|syscall.O_NOFOLLOW, mode)
		if err != syscall.EINTR {
			return fd, err
		}
	}
}

// statAt looks at a name itself, following no link.
func statAt(d *directory, name string, st *syscall.Stat_t) error {
	fd, err := openAt(d, name, oPath, 0)
	if err != nil {
		return err
	}
	defer closeFD(fd)
	return syscall.Fstat(fd, st)
}

func unlinkAt(d *directory, name string) error { return syscall.Unlinkat(d.fd, name) }

func renameAt(d *directory, from, to string) error {
	return syscall.Renameat(d.fd, from, d.fd, to)
}

// keepFromCleaners locks the directory as systemd-tmpfiles(8) asks those to do
// who do not want it aged.
func keepFromCleaners(fd int) { _ = syscall.Flock(fd, syscall.LOCK_SH|syscall.LOCK_NB) }

func modTime(st *syscall.Stat_t) int64 { return st.Mtim.Nano() }

// duplicate returns another descriptor of the same open file description.
func duplicate(fd int) (int, error) {
	dup, _, errno := syscall.Syscall(sysFcntl, uintptr(fd), syscall.F_DUPFD_CLOEXEC, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(dup), nil
}
