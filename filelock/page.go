//go:build linux || darwin

package filelock

import (
	"runtime/debug"
	"syscall"
	"time"
)

// page is the first page of a lock file, mapped into memory: for a name that is
// taken again and again it saves two calls of the kernel, which cost as much as
// the locks. nil: not mapped.
//
// The kernel keeps it the same as what read(2) and write(2) see, on the file
// systems of one machine. It notes the time of such a write only now and then,
// though, and by that time sweepers tell which files are idle: so a page is used
// only for a moment after an ordinary write (recheck).
type page []byte

// pageSize is as much of a file as is mapped: all that an exclusive grant reads
// and writes is in it.
const pageSize = nameOffset

// fresh tells whether the last grant of the file is so short a time ago that its
// path, and its time, need not be looked at.
func (f *file) fresh(now time.Time) bool { return now.Sub(f.verified) < recheck }

// view gives the page of a file that has been granted before, nil if the file
// system has none to give.
func (f *file) view() page {
	if f.page == nil && !f.unmappable {
		mapped, err := syscall.Mmap(f.fd, 0, pageSize, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
		if f.unmappable = err != nil; !f.unmappable {
			f.page = mapped
		}
	}
	return f.page
}

// read copies from the page. It answers false if there is none, or no file
// behind it any more: a person can cut a file off at any time.
func (p page) read(b []byte) (ok bool) {
	if p == nil {
		return false
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer catchFault(&ok)
	copy(b, p)
	return true
}

// write copies into the page, as read does from it.
func (p page) write(b []byte) (ok bool) {
	if p == nil {
		return false
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer catchFault(&ok)
	copy(p, b)
	return true
}

// catchFault makes false of a fault of the memory (SIGBUS), which is all that a
// copy can panic with.
func catchFault(ok *bool) {
	if recover() != nil {
		*ok = false
	}
}

func (p page) unmap() {
	if p != nil {
		_ = syscall.Munmap(p)
	}
}
