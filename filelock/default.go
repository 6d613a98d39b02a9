//go:build linux || darwin

package filelock

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/holdfast-go/holdfast/driver"
)

// DefaultDir returns the directory of the default store, made if it is missing:
// /run/lock/holdfast-<uid>; or /tmp/holdfast-<uid> where that does not exist
// and this user may not make it, as there is no /run/lock or it is root's
// alone. No environment variable changes it, so that cron and a shell meet. It
// must be a real directory of this user that nobody else may enter, else the
// error is Denied.
func DefaultDir() (string, error) { return defaultDir("/run/lock", "/tmp", os.Getuid()) }

// defaultDir falls back only for what is the same for all programs of the
// user, and lasts: so that they meet.
func defaultDir(first, second string, uid int) (string, error) {
	dir, err := privateDir(first, uid)
	for _, lasting := range []error{syscall.ENOENT, syscall.ENOTDIR, syscall.EACCES, syscall.EPERM, syscall.EROFS} {
		if errors.Is(err, lasting) {
			return privateDir(second, uid)
		}
	}
	return dir, err
}

// privateDir makes the user's directory, or checks the one that exists. Errors
// that wrap the kernel's say that there is none and that it cannot be made.
func privateDir(parent string, uid int) (string, error) {
	path := fmt.Sprintf("%s/holdfast-%d", parent, uid)
	made := os.Mkdir(path, 0o700) //nolint:gosec // of two fixed places and a number
	var st syscall.Stat_t
	// Not every kernel says first that it exists.
	err := syscall.Lstat(path, &st)
	switch {
	case err != nil && made != nil && !errors.Is(made, os.ErrExist):
		return "", failure("make", path, errnoOf(made))
	case err != nil: // it went this moment: no reason to go elsewhere
		return "", failf(driver.Unavailable, "look at %s: %v", path, err)
	case st.Mode&syscall.S_IFMT == syscall.S_IFLNK:
		return "", failf(driver.Denied, "%s is a symbolic link, not a directory", path)
	case st.Mode&syscall.S_IFMT != syscall.S_IFDIR:
		return "", failf(driver.Denied, "%s is not a directory", path)
	case int(st.Uid) != uid:
		return "", failf(driver.Denied, "%s belongs to another user (uid %d)", path, st.Uid)
	case st.Mode&0o077 != 0:
		return "", failf(driver.Denied, "%s may be entered by other users (mode %04o, not 0700)", path, st.Mode&0o7777)
	}
	return path, nil
}
