//go:build linux || darwin

package filelock

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// The floor is one small file for the whole directory. It keeps the largest
// token of all files that were removed, so that tokens grow also for a name
// whose file was removed and made anew, whatever the clock did meanwhile.
const (
	floorName = "holdfast.floor"
	floorForm = "holdfast-floor 1 token=00000000000000000 swept=0000000000\n"
	floorAt   = len("holdfast-floor 1 token=")
	sweptAt   = len("holdfast-floor 1 token=00000000000000000 swept=")
	magicEnd  = len("holdfast-floor 1 ")

	// Its bytes that are locked: by who writes it, and by who sweeps.
	floorByte = 0
	sweepByte = 1
)

// readFloor reads the floor for a file that is new. A damaged one counts for
// nothing: the clock alone makes the token then, as it does on almost every day.
func readFloor(d *directory) (uint64, error) {
	fd, err := openAt(d, floorName, syscall.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.EACCES) {
		// Nothing was removed yet; or it is another user's, and he would not
		// have let us lock what he removed.
		return 0, nil
	}
	if err != nil {
		return 0, openFailure(d.file(floorName), err)
	}
	defer closeFD(fd)
	var f floorRecord
	for range tornTries { // it may be being written
		if f, err = parseFloor(d, fd); err != nil || !f.damaged {
			break
		}
	}
	return f.token, err
}

type floorRecord struct {
	token   uint64
	swept   int64 // when the directory was last swept, in seconds
	damaged bool  // ours, but cut short or garbled; nothing else is known then
}

func (f floorRecord) text() []byte {
	b := []byte(floorForm)
	putDecimal(b[floorAt:floorAt+17], f.token)
	putDecimal(b[sweptAt:sweptAt+10], uint64(max(f.swept, 0)))
	return b
}

func parseFloor(d *directory, fd int) (floorRecord, error) {
	var b [len(floorForm)]byte
	got, err := readAt(fd, b[:], 0)
	head := string(got[:min(len(got), magicEnd)])
	switch {
	case err != nil:
		return floorRecord{}, failure("read", d.file(floorName), err)
	case allZero(got):
		return floorRecord{}, nil
	case !strings.HasPrefix(floorForm, head):
		return floorRecord{}, failf(driver.Conflict, "%s is not a file of ours, or of another version: move it away, it is made anew", d.file(floorName))
	case len(got) < len(b):
		return floorRecord{damaged: true}, nil // a full disk may have cut a write short
	}
	token, ok1 := decimal(b[floorAt : floorAt+17])
	swept, ok2 := decimal(b[sweptAt : sweptAt+10])
	if !ok1 || !ok2 || token > maxToken {
		return floorRecord{damaged: true}, nil
	}
	return floorRecord{token: token, swept: int64(swept)}, nil //nolint:gosec // ten digits
}

// openFloor opens the floor for writing, and makes it if it is missing.
func (s *store) openFloor(d *directory) (int, error) {
	for range maxOpenTries {
		fd, err := openAt(d, floorName, syscall.O_RDWR|syscall.O_NONBLOCK, 0)
		if errors.Is(err, syscall.ENOENT) {
			fd, err = s.create(d, floorName)
		}
		if err == nil {
			return fd, nil
		}
		if !errors.Is(err, syscall.EEXIST) {
			return -1, openFailure(d.file(floorName), err)
		}
	}
	return -1, comesAndGoes(d.file(floorName))
}

// raiseFloor writes what change makes of the floor. The lock is held for the
// moment of one read and one write. What a damaged one had is lost; no token was
// above the clock, unless that was set back, so it goes on from there.
func raiseFloor(ctx context.Context, d *directory, fd int, change func(*floorRecord)) error {
	if err := lockSoon(ctx, fd, floorByte, d.file(floorName)); err != nil {
		return err
	}
	defer free(fd, floorByte, 1)
	f, err := parseFloor(d, fd)
	if err != nil {
		return err
	}
	before := f
	if f.damaged {
		f = floorRecord{token: uint64(max(time.Now().UnixMicro(), 0))}
	}
	change(&f)
	if f == before {
		return nil
	}
	b := f.text()
	switch n, err := syscall.Pwrite(fd, b, 0); {
	case err != nil:
		return failure("write", d.file(floorName), err)
	case n < len(b):
		return failure("write", d.file(floorName), syscall.ENOSPC)
	}
	return nil
}
