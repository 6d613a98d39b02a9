//go:build linux || darwin

package filelock

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/holdfast-go/holdfast/driver"
)

// failf makes an error of a kind.
func failf(kind driver.Kind, format string, args ...any) error {
	return &driver.Failure{Kind: kind, Err: fmt.Errorf(format, args...)}
}

// failure gives the kernel's answer its kind and names the file. Whatever the
// call had begun, its caller has undone: so nothing here is Indeterminate.
func failure(op, path string, err error) error {
	return failf(kindOfErrno(err), "%s %s: %w", op, path, err)
}

func kindOfErrno(err error) driver.Kind {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return driver.Unavailable
	}
	switch errno {
	case syscall.EACCES, syscall.EPERM, syscall.EROFS:
		return driver.Denied
	case syscall.ELOOP, syscall.EISDIR, syscall.ENOTDIR, syscall.ENXIO:
		return driver.Conflict
	case syscall.ENAMETOOLONG:
		return driver.Invalid
	case syscall.EINVAL, syscall.ENOSYS, syscall.EOPNOTSUPP:
		return driver.Unsupported
	default:
		return driver.Unavailable
	}
}

// isFull tells whether room, made by removing idle files, could help.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
