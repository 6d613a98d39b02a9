//go:build linux || darwin

package filelock

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

const suffix = ".lock"

// file is an open lock file, with a descriptor of its own: one hold, or one
// attempt, at a time.
type file struct {
	dir  *directory
	key  string
	path string
	fd   int
	// What is open, wherever the path leads by now.
	dev, ino uint64
	// made says that this store created it and nobody was granted yet.
	made bool

	seat *seat // where it came from: see cache

	page       page // nil until it is worth while
	unmappable bool // on a network, or where the kernel refused
	cut        bool // the file is shorter than the page

	// verified is when the path was last known to lead here; released when a
	// hold of it ended, turn when the present run of holds without a pause
	// began: see politeness.
	verified, released, turn time.Time

	hold
	state [stateSize]byte // what is written; kept between grants
	head  [headerSize]byte
}

// hold is what a file is granted for.
type hold struct {
	owner  driver.Owner
	mode   driver.Mode
	token  uint64
	n      int
	slot   int
	boot   int64
	label  string
	quoted string // label, as the record has it
	said   uint64 // the number of the latest value
	// inherited descriptors may be open elsewhere: so the file is not used again.
	inherited bool
}

func (f *file) close() {
	f.page.unmap()
	closeFD(f.fd)
}

func (f *file) failure(op string, err error) error { return failure(op, f.path, err) }

// maxOpenTries bounds how often an open may lose against files that come and
// go, before something must be wrong.
const maxOpenTries = 1000

// open opens the file of a key, and creates it if it is missing. It is opened
// without O_CREAT first: the kernel refuses that for another user's file in a
// sticky directory (fs.protected_regular).
func (s *store) open(ctx context.Context, key string) (*file, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	const flags = syscall.O_RDWR | syscall.O_NONBLOCK
	var again patience
	for range maxOpenTries {
		d, err := s.directory(s.opts.Create)
		if err != nil {
			return nil, err
		}
		f := &file{dir: d, key: key, path: d.file(key + suffix), unmappable: d.network != ""}
		f.fd, err = openAt(d, key+suffix, flags, 0)
		if err == syscall.ENOENT { //nolint:errorlint // a bare errno
			f.fd, err = s.create(d, key+suffix)
			f.made = err == nil
		}
		switch {
		case err == nil:
			if err = s.checkKind(f); err != nil {
				f.close()
				return nil, err
			}
			return f, nil
		case errors.Is(err, syscall.EEXIST):
		case errors.Is(err, syscall.ENOENT): // the directory went this moment
		case errors.Is(err, syscall.EACCES) && s.opts.Shared && again.wait(ctx):
			// Its maker may be about to open it up.
		default:
			return nil, openFailure(f.path, err)
		}
	}
	return nil, comesAndGoes(s.path + "/" + key + suffix)
}

func comesAndGoes(path string) error {
	return failf(driver.Unavailable, "open %s: it comes and goes", path)
}

func (s *store) create(d *directory, name string) (int, error) {
	const flags = syscall.O_RDWR | syscall.O_NONBLOCK | syscall.O_CREAT | syscall.O_EXCL
	fd, err := openAt(d, name, flags, uint32(s.fileMode()))
	if err == nil && s.opts.Shared { // the umask took some of it
		if err = syscall.Fchmod(fd, uint32(s.fileMode())); err != nil {
			closeFD(fd)
		}
	}
	return fd, err
}

func openFailure(path string, err error) error {
	if errors.Is(err, syscall.ELOOP) {
		return failf(driver.Conflict, "%s is a symbolic link, not a lock file", path)
	}
	return failure("open", path, err)
}

// checkKind refuses what is no file of its own: a pipe, or one more name of a
// file that somebody wants us to write into.
func (s *store) checkKind(f *file) error {
	var st syscall.Stat_t
	err := syscall.Fstat(f.fd, &st)
	switch {
	case err != nil:
		return f.failure("look at", err)
	case st.Mode&syscall.S_IFMT != syscall.S_IFREG:
		return failf(driver.Conflict, "%s is not a regular file, so it is no lock file", f.path)
	case st.Nlink > 1:
		return failf(driver.Conflict, "%s has several names (hard links), so it is no lock file", f.path)
	}
	f.dev, f.ino = uint64(st.Dev), st.Ino //nolint:unconvert // types differ by platform
	if s.opts.Shared && st.Mode&0o666 != 0o666 && int(st.Uid) == os.Geteuid() {
		// Made by a private store of ours, or by one that died half-way.
		if err := syscall.Fchmod(f.fd, uint32(s.fileMode())); err != nil {
			return f.failure("open up", err)
		}
	}
	return nil
}

// checkKey keeps what cannot be a file of ours from the path. Package holdfast
// never asks for such a key.
func checkKey(key string) error {
	if key == "" || len(key) > maxKeyBytes {
		return failf(driver.Invalid, "key of %d bytes: 1 to %d are allowed", len(key), maxKeyBytes)
	}
	for _, c := range []byte(key) {
		if c == '/' || c == 0 {
			return failf(driver.Invalid, "key %q cannot be a file name", key)
		}
	}
	return nil
}

// named tells whether the path leads to this very file. It does not if the
// file was swept, replaced by a forced break, or removed by a person, or if the
// directory was moved away or made anew: who comes later gets another file.
func (f *file) named() (bool, error) {
	var st syscall.Stat_t
	switch err := syscall.Lstat(f.path, &st); {
	case leadsNowhere(err):
		return false, nil
	case err != nil:
		return false, f.failure("look at", err)
	}
	return uint64(st.Dev) == f.dev && st.Ino == f.ino, nil //nolint:unconvert // types differ by platform
}

// readHeader reads the first block. Foreign files are refused.
func (f *file) readHeader() (header, headerState, error) {
	n, err := syscall.Pread(f.fd, f.head[:], 0)
	if err != nil {
		return header{}, 0, f.failure("read", err)
	}
	h, state := parseHeader(f.head[:n])
	if state == headerGood { // the path costs an allocation
		return h, state, nil
	}
	return h, state, headerError(f.path, state)
}

func headerError(path string, state headerState) error {
	switch state {
	case headerForeign:
		return failf(driver.Conflict, "%s is not a lock file of ours", path)
	case headerOtherVersion:
		return failf(driver.Conflict, "%s was written by another version", path)
	default:
		return nil
	}
}

// write writes a block whole.
func (f *file) write(b []byte, off int64) error {
	for {
		n, err := syscall.Pwrite(f.fd, b, off)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return f.failure("write", err)
		case n < len(b):
			return f.failure("write", syscall.ENOSPC)
		default:
			return nil
		}
	}
}

// readAt reads a block as far as the file goes.
func readAt(fd int, b []byte, off int64) ([]byte, error) {
	n, err := syscall.Pread(fd, b, off)
	if err != nil {
		return nil, err
	}
	return b[:n], nil
}
