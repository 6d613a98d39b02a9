//go:build linux || darwin

package filelock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/holdfast-go/holdfast/driver"
)

// DefaultDir returns the directory of the default store, made if it is
// missing: /run/lock/holdfast-<uid>, or /tmp/holdfast-<uid> where there is no
// /run/lock. No environment variable changes it, so that cron and a shell
// meet. If it exists it must be a real directory of this user that nobody else
// may enter, else the error is Denied.
func DefaultDir() (string, error) {
	parent := "/run/lock"
	if _, err := os.Stat(parent); errors.Is(err, os.ErrNotExist) {
		parent = "/tmp"
	}
	return privateDir(parent, os.Getuid())
}

func privateDir(parent string, uid int) (string, error) {
	path := fmt.Sprintf("%s/holdfast-%d", parent, uid)
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", failure("make", path, errnoOf(err))
	}
	var st syscall.Stat_t
	if err := syscall.Lstat(path, &st); err != nil {
		return "", failure("look at", path, err)
	}
	switch {
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

// directory is an open directory of lock files.
type directory struct {
	path     string
	fd       int
	dev, ino uint64
	network  string // the network file system it is on, or ""
	open     bool   // other users may write
}

// openDirectory opens the directory and looks whether locks work in it.
func openDirectory(path string, opts *Options) (*directory, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, failf(driver.Unavailable, "directory %s: %w", path, err)
	}
	d := &directory{path: abs}
	if d.fd, err = openDirectoryFile(abs, opts); err != nil {
		return nil, err
	}
	if err := d.inspect(opts); err != nil {
		d.close()
		return nil, err
	}
	keepFromCleaners(d.fd)
	return d, nil
}

func openDirectoryFile(path string, opts *Options) (int, error) {
	const flags = syscall.O_RDONLY | syscall.O_DIRECTORY | syscall.O_NOFOLLOW | syscall.O_CLOEXEC
	fd, err := syscall.Open(path, flags, 0)
	if errors.Is(err, syscall.ENOENT) && opts.Create {
		if e := makeDirectory(path, opts.Shared); e != nil {
			return -1, e
		}
		fd, err = syscall.Open(path, flags, 0)
	}
	if err == nil {
		return fd, nil
	}
	// The kernel has one answer for a link and for a file there.
	if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) {
		var st syscall.Stat_t
		if syscall.Lstat(path, &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFLNK {
			return -1, failf(driver.Conflict, "%s is a symbolic link; the store wants the directory itself", path)
		}
		return -1, failf(driver.Conflict, "%s is not a directory", path)
	}
	return -1, failure("open directory", path, err)
}

func makeDirectory(path string, shared bool) error {
	mode := os.FileMode(0o700)
	if shared {
		mode = 0o777 | os.ModeSticky
	}
	switch err := os.Mkdir(path, mode); { //nolint:gosec // the user names the directory
	case errors.Is(err, os.ErrExist): // another was quicker
		return nil
	case err != nil:
		return failure("make directory", path, errnoOf(err))
	case shared: // against the umask
		if err := os.Chmod(path, mode); err != nil { //nolint:gosec // as above
			return failure("make directory", path, errnoOf(err))
		}
	}
	return nil
}

// inspect finds out what the directory is, and refuses network file systems.
func (d *directory) inspect(opts *Options) error {
	var st syscall.Stat_t
	if err := syscall.Fstat(d.fd, &st); err != nil {
		return failure("look at", d.path, err)
	}
	d.dev, d.ino = uint64(st.Dev), st.Ino //nolint:unconvert // types differ by platform
	d.open = st.Mode&0o022 != 0
	network, err := networkName(d.fd)
	if err != nil {
		return failure("look at", d.path, err)
	}
	if network != "" && !opts.AllowNetwork {
		return failf(driver.Unsupported, "%s is on %s, a network file system, where locks may not exclude other machines; "+
			"network=allow accepts that, as class D", d.path, network)
	}
	d.network = network
	return nil
}

func (d *directory) close() { closeFD(d.fd) }

func (d *directory) file(name string) string { return d.path + "/" + name }

// reopen follows a directory that was removed and made again. It answers false
// if the path still leads to the one that we have, or nowhere.
func (s *store) reopen(d *directory) bool {
	fresh, err := openDirectory(s.path, &s.opts)
	if err != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.dir.Load()
	switch {
	case s.closed || fresh.dev == now.dev && fresh.ino == now.ino:
		fresh.close()
		return now != d && !s.closed
	default:
		s.old = append(s.old, now) // holds may use it still
		s.dir.Store(fresh)
		s.idle.closeAll()
		return true
	}
}

// errnoOf unwraps package os's errors, whose text repeats the path.
func errnoOf(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}
