//go:build linux || darwin

package filelock

import (
	"errors"
	"os"
	"syscall"

	"github.com/holdfast-go/holdfast/driver"
)

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
	d := &directory{path: path}
	var err error
	if d.fd, err = openDirectoryFile(path, opts); err != nil {
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
			return -1, failf(driver.Denied, "%s is a symbolic link; the store wants the directory itself", path)
		}
		return -1, failf(driver.Unavailable, "%s is not a directory", path)
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
	if d.network = network; network != "" {
		locksMayHang.Store(true)
	}
	return nil
}

func (d *directory) close() { closeFD(d.fd) }

func (d *directory) file(name string) string { return d.path + "/" + name }

// placed tells whether the path still leads here: not if the directory was
// removed, moved away, or hidden by a mount.
func (d *directory) placed() (bool, error) {
	var st syscall.Stat_t
	switch err := syscall.Lstat(d.path, &st); {
	case leadsNowhere(err):
		return false, nil
	case err != nil:
		return false, failure("look at", d.path, err)
	}
	return uint64(st.Dev) == d.dev && st.Ino == d.ino, nil //nolint:unconvert // types differ by platform
}

// directory answers with the directory that the path leads to now: the one that
// is open, or one that was made in its place since. If there is none it is made
// if create is set, and else an error.
func (s *store) directory(create bool) (*directory, error) {
	d := s.dir.Load()
	if ok, err := d.placed(); ok || err != nil {
		return d, err
	}
	opts := s.opts
	opts.Create = create
	fresh, err := openDirectory(s.path, &opts)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.dir.Load()
	switch {
	case s.closed:
		fresh.close()
		return nil, s.errClosed()
	case fresh.dev == now.dev && fresh.ino == now.ino: // another call was quicker
		fresh.close()
		return now, nil
	case fresh.network != "" && s.props.Class != driver.ClassD:
		fresh.close()
		return nil, failf(driver.Unsupported, "%s has moved to %s, a network file system, since the store was opened", s.path, fresh.network)
	}
	s.old = append(s.old, now) // holds may use it still
	s.dir.Store(fresh)
	s.idle.closeAll()
	return fresh, nil
}

// directoryToLook is directory for those who only look: it makes none. Where
// the path leads nowhere it answers with the open one, in which some may hold
// who were not told yet.
func (s *store) directoryToLook() (*directory, error) {
	d, err := s.directory(false)
	if errors.Is(err, syscall.ENOENT) {
		return s.dir.Load(), nil
	}
	return d, err
}

// leadsNowhere tells whether a path has no end.
func leadsNowhere(err error) bool {
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR)
}

// errnoOf unwraps package os's errors, whose text repeats the path.
func errnoOf(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}
