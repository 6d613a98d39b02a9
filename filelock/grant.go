//go:build linux || darwin

package filelock

import (
	"os"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// recheck is for how long a directory's path is taken to lead to it still: moving
// a directory whose files are held cannot be prevented anyway, and is told by the
// next renewal. So a move this short a time before a grant counts as one after.
// That the file itself still has a name is asked each time.
const recheck = time.Millisecond

var pid = os.Getpid()

// turn is how long a store takes a name again and again before it looks for
// others, and a pause what ends such a run: see polite.
const (
	turn  = 10 * time.Millisecond
	pause = time.Millisecond
)

// grantExclusive mints the token and writes the record, with gate and lock
// write-locked: so nobody else writes.
func (s *store) grantExclusive(f *file, req *driver.AcquireRequest) (verdict, error) {
	now := time.Now()
	if !s.polite(f, now) {
		return held, nil
	}
	var mapped page
	if f.fresh(now) {
		mapped = f.view()
	}
	h, state, err := f.lastHeader(mapped)
	if err != nil {
		return 0, err
	}
	if state != headerGood {
		// New, or swept, or replaced: a good header in a file that has no name any
		// more would let in those who have it open.
		f.verified = time.Time{}
		if ok, nerr := f.named(); nerr != nil || !ok {
			return stale, nerr
		}
	}
	micros, boot := s.clock(now)
	token, err := s.mint(f, h, state, micros)
	if err != nil {
		return 0, err
	}
	s.fill(f, req, token, boot)
	putHeader(f.state[:], header{kind: kindLock, token: token})
	switch {
	case state != headerGood:
		err = f.writeFirst(f.state[:], req.Name)
	case !mapped.write(f.state[:]):
		err = f.write(f.state[:], 0)
	}
	if err != nil {
		return 0, err
	}
	v, err := s.verify(f, now)
	if v == granted && f.cut {
		err = f.mend()
	}
	return v, err
}

// mend writes the record of a file that was cut off, where what went through the
// page is lost.
func (f *file) mend() error {
	f.cut = false
	return f.write(f.state[:], 0)
}

// lastHeader reads what the last grant left, from the page if there is one.
func (f *file) lastHeader(p page) (header, headerState, error) {
	if p.read(f.head[:]) {
		if h, state := parseHeader(f.head[:]); state == headerGood {
			return h, state, nil
		}
	}
	return f.readHeader() // it knows where the file ends
}

// mint makes the token: larger than the last one, and than all of the files
// that were removed.
func (s *store) mint(f *file, h header, state headerState, micros uint64) (uint64, error) {
	last := h.token
	if state != headerGood {
		floor, err := readFloor(f.dir)
		if err != nil {
			return 0, err
		}
		last = max(last, floor)
	}
	token := max(last+1, micros)
	if token > maxToken {
		return 0, failf(driver.Unavailable, "%s has no token left: the last one was %d", f.path, last)
	}
	return token, nil
}

// fill makes the entry of a grant, and notes it in the file.
func (s *store) fill(f *file, req *driver.AcquireRequest, token uint64, boot int64) {
	if f.label != req.Label || f.quoted == "" {
		f.label = req.Label
		f.quoted = quote(req.Label, entrySize-1-entryLabel)
	}
	f.owner, f.mode, f.token, f.n, f.boot, f.slot = req.Owner, req.Mode, token, req.N, boot, 0
	f.said = 0
	f.putEntry()
}

func (f *file) putEntry() {
	putEntry(f.state[headerSize:], &entry{
		mode: f.mode, token: f.token, permits: f.n, owner: f.owner, pid: pid, boot: f.boot,
	}, f.quoted)
}

// writeFirst writes a block at the start of a file together with the names.
func (f *file) writeFirst(state []byte, name driver.Name) error {
	names := nameBlock(name.Full, name.Prefix)
	page := make([]byte, nameOffset+len(names))
	copy(page, state)
	copy(page[nameOffset:], names)
	return f.write(page, 0)
}

// verify makes sure, after the record was written, that the path still led to
// this file: whoever replaces it by force looks at the record last, and in a
// directory that was moved away nothing is granted.
func (s *store) verify(f *file, now time.Time) (verdict, error) {
	if f.fresh(now) {
		return f.verifyOpen()
	}
	switch ok, err := f.named(); {
	case err != nil:
		return 0, err
	case !ok:
		return stale, nil
	}
	f.verified, f.made = now, false
	return granted, nil
}

// verifyOpen is verify at a tenth of its price: a sweep unlinks the file, a forced
// break renames another over it, and a person may cut it off.
func (f *file) verifyOpen() (verdict, error) {
	var st syscall.Stat_t
	switch err := syscall.Fstat(f.fd, &st); {
	case err != nil:
		return 0, f.failure("look at", err)
	case st.Nlink == 0:
		return stale, nil
	}
	f.cut = st.Size < stateSize
	return granted, nil
}

// polite tells whether this store may go on taking the name. The kernel wakes
// the next in the queue, but a store that takes the name again at once is
// quicker. So whoever has had a turn without a pause looks whether somebody is
// parked at the gate, and lets him come first.
func (s *store) polite(f *file, now time.Time) bool {
	switch {
	case now.Sub(f.released) > pause:
		f.turn = now
	case now.Sub(f.turn) > turn:
		f.turn = now
		if _, crowd, err := probe(f.fd, writeLock, crowdByte, 1); err == nil && crowd {
			return false
		}
	}
	return true
}
