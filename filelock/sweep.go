//go:build linux || darwin

package filelock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	tempPrefix = ".holdfast-"
	// listAtOnce is how many names of a directory are read at once.
	listAtOnce = 512
	// closeSweep is how long Close lets a sweep go on, so that programs that
	// run for a moment only do their share.
	closeSweep = 100 * time.Millisecond
)

func tempName() string { return fmt.Sprintf("%s%016x", tempPrefix, rand.Uint64()) }

// sweeper removes the files of names that were not granted for a while. One
// process of all that use the directory does it at a time, twice in
// Options.IdleFiles; also programs that run only for a moment take their turn.
type sweeper struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func (sw *sweeper) start(s *store) {
	ctx, cancel := context.WithCancel(context.Background())
	sw.cancel = cancel
	sw.done.Go(func() { sw.run(ctx, s) })
}

func (sw *sweeper) stop() {
	ended := make(chan struct{})
	go func() { sw.done.Wait(); close(ended) }()
	timer := time.AfterFunc(closeSweep, sw.cancel)
	defer timer.Stop()
	<-ended
	sw.cancel()
}

func (sw *sweeper) run(ctx context.Context, s *store) {
	for {
		if s.sweepDue() {
			s.sweep(ctx, s.opts.IdleFiles)
		}
		timer := time.NewTimer(s.opts.IdleFiles/2 + time.Duration(rand.Int64N(int64(s.opts.IdleFiles/4)+1)))
		select {
		case <-timer.C:
		case <-s.done:
			timer.Stop()
			return
		}
	}
}

// sweepDue tells whether nobody has swept the directory lately.
func (s *store) sweepDue() bool {
	d := s.dir.Load()
	fd, err := openAt(d, floorName, syscall.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return errors.Is(err, syscall.ENOENT)
	}
	defer closeFD(fd)
	f, err := parseFloor(d, fd) // a damaged one is due: the sweep mends it
	age := time.Since(time.Unix(f.swept, 0))
	return err == nil && (age < 0 || age >= s.opts.IdleFiles/2-time.Second)
}

// sweep removes files that were idle for so long, and answers how many. Errors
// end it: there is nobody to tell, and another sweep will come.
func (s *store) sweep(ctx context.Context, idle time.Duration) (removed int) {
	d, err := s.directoryToLook()
	if err != nil {
		return 0
	}
	floor, err := s.openFloor(d)
	if err != nil {
		return 0
	}
	defer closeFD(floor)
	if ok, e := tryLock(floor, writeLock, sweepByte, 1); !ok || e != nil {
		return 0
	}
	err = d.eachName(ctx, func(name string) {
		if s.sweepFile(ctx, d, floor, name, idle) {
			removed++
		}
	})
	if err == nil && idle > 0 {
		_ = raiseFloor(ctx, d, floor, func(f *floorRecord) { f.swept = time.Now().Unix() })
	}
	return removed
}

// eachName visits the names in the directory.
func (d *directory) eachName(ctx context.Context, visit func(string)) error {
	fd, err := openAt(d, ".", syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return failure("read", d.path, err)
	}
	list := os.NewFile(uintptr(fd), d.path)
	defer func() { _ = list.Close() }()
	for {
		names, err := list.Readdirnames(listAtOnce)
		for _, name := range names {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			visit(name)
		}
		if len(names) == 0 || err != nil {
			if err == nil || errors.Is(err, io.EOF) || errors.Is(err, syscall.ENOENT) { // it was removed
				return nil
			}
			return failure("read", d.path, errnoOf(err))
		}
	}
}

// lockUnheld takes the gate of a file that nobody holds or waits for. Then
// nobody can be granted it, as a grant needs the gate; and those who try look
// again, since a lock that is free says that the gate is busy for a moment.
func lockUnheld(fd int) bool {
	ok, err := tryLock(fd, writeLock, gateByte, 1)
	if !ok || err != nil {
		return false
	}
	_, busy, err := probe(fd, writeLock, lockByte, toEnd)
	return !busy && err == nil
}

// sweepFile removes one file if it has been idle: who comes later, with the
// file open already, finds that it has lost its name.
func (s *store) sweepFile(ctx context.Context, d *directory, floor int, name string, idle time.Duration) bool {
	lock, temp := strings.HasSuffix(name, suffix), strings.HasPrefix(name, tempPrefix)
	var st syscall.Stat_t
	if !lock && !temp || statAt(d, name, &st) != nil || st.Mode&syscall.S_IFMT != syscall.S_IFREG || !isIdle(&st, idle) {
		return false
	}
	if temp { // of a forced break that died half-way
		return idle > 0 && unlinkAt(d, name) == nil
	}
	fd, err := openAt(d, name, syscall.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer closeFD(fd) // and what is locked with it
	if !lockUnheld(fd) {
		return false
	}
	if syscall.Fstat(fd, &st) != nil || st.Nlink != 1 || !isIdle(&st, idle) {
		return false
	}
	var head [headerSize]byte
	got, err := readAt(fd, head[:], 0)
	if err != nil {
		return false
	}
	h, state := parseHeader(got)
	if state == headerForeign || state == headerOtherVersion {
		return false
	}
	raise := func(f *floorRecord) { f.token = max(f.token, h.token) }
	// Whoever has the file open, and looked a moment ago that it has its name,
	// finds it empty and looks again.
	return raiseFloor(ctx, d, floor, raise) == nil && blank(fd) && unlinkAt(d, name) == nil
}

// blank takes the header out of a file that loses its name.
func blank(fd int) bool {
	var zeros [headerSize]byte
	_, err := syscall.Pwrite(fd, zeros[:], 0)
	return err == nil
}

func isIdle(st *syscall.Stat_t, idle time.Duration) bool {
	return time.Since(time.Unix(0, modTime(st))) >= idle
}

// removeUnused removes a file that was made for an attempt that failed, unless
// somebody else was granted it meanwhile.
func (s *store) removeUnused(f *file) {
	if !lockUnheld(f.fd) {
		return
	}
	if named, err := f.named(); err != nil || !named {
		return
	}
	if _, state, err := f.readHeader(); err == nil && state != headerGood {
		_ = unlinkAt(f.dir, f.key+suffix)
	}
}
