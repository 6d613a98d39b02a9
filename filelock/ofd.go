//go:build linux || darwin

package filelock

import (
	"sync/atomic"
	"syscall"
)

// The bytes of a lock file that are locked. Each lock belongs to an open file
// description, one for each hold, and says:
//
//	mark  a waiter has the gate and waits for the lock
//	gate  somebody grants, waits for the lock, or holds it exclusive
//	lock  somebody holds the name: write-locked exclusive, else read-locked
//	slot  the holder that is written in this slot of the table lives
//
// The kernel frees all of them when the holder dies. An exclusive holder has
// gate and lock, taken in one call, so that the kernel itself keeps those who
// come after him in order, and wakes one at a time.
const (
	markByte = 0
	gateByte = 1
	lockByte = 2
	slotByte = 2 // slot i, from 1, is byte 2+i

	// crowdByte is read-locked by all who are parked at the gate; breakByte is
	// locked while a break is written.
	crowdByte = 1 << 40
	breakByte = 1<<40 + 1

	toEnd = 0 // a length: all bytes from the start on
)

const (
	readLock  = syscall.F_RDLCK
	writeLock = syscall.F_WRLCK
	unlock    = syscall.F_UNLCK
)

// locksMayHang is set for good when a store of this process accepts a network
// file system.
var locksMayHang atomic.Bool

// tryLock locks n bytes unless another's lock is in the way.
func tryLock(fd int, kind int16, start, n int64) (bool, error) {
	lk := syscall.Flock_t{Type: kind, Start: start, Len: n}
	switch errno := fcntlNow(fd, setLock, &lk); errno {
	case 0:
		return true, nil
	case syscall.EAGAIN, syscall.EACCES:
		return false, nil
	default:
		return false, errno
	}
}

// waitLock locks n bytes and blocks until nothing is in the way.
func waitLock(fd int, kind int16, start, n int64) error {
	for {
		err := syscall.FcntlFlock(uintptr(fd), setLockWait, &syscall.Flock_t{Type: kind, Start: start, Len: n})
		if err != syscall.EINTR {
			return err
		}
	}
}

// free unlocks n bytes.
func free(fd int, start, n int64) {
	lk := syscall.Flock_t{Type: unlock, Start: start, Len: n}
	_ = fcntlNow(fd, setLock, &lk) // cannot fail for a descriptor that is open
}

// closeFD closes a descriptor. What it was for is done, or undone by this.
func closeFD(fd int) { _ = syscall.Close(fd) }

// probe tells whether a lock of n bytes would meet another's, and of what kind
// that is, without taking anything.
func probe(fd int, kind int16, start, n int64) (found int16, busy bool, err error) {
	lk := syscall.Flock_t{Type: kind, Start: start, Len: n}
	if errno := fcntlNow(fd, getLock, &lk); errno != 0 {
		return 0, false, errno
	}
	return lk.Type, lk.Type != unlock, nil
}
