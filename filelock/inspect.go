//go:build linux || darwin

package filelock

import (
	"context"
	"errors"
	"iter"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Inspect implements [driver.Inspector]. It asks the kernel who lives and
// takes no lock.
func (s *store) Inspect(ctx context.Context, n driver.Name) (driver.Record, error) {
	if err := s.begin(ctx); err != nil {
		return driver.Record{}, err
	}
	f, err := s.openToLook(n.Key, syscall.O_RDONLY)
	if err != nil || f == nil {
		return driver.Record{Name: n.Full}, err
	}
	defer f.close()
	seen, err := f.look(0)
	if err != nil {
		return driver.Record{}, err
	}
	return s.record(seen, n.Full), nil
}

// List implements [driver.Lister].
func (s *store) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		if err := s.begin(ctx); err != nil {
			yield(driver.Record{}, err)
			return
		}
		listing, stop := context.WithCancel(ctx)
		defer stop()
		ended := false
		d, err := s.directoryToLook()
		if err != nil {
			yield(driver.Record{}, err)
			return
		}
		err = d.eachName(listing, func(name string) {
			r, ok, e := s.listed(d, name, prefix)
			if (ok || e != nil) && !yield(r, e) || e != nil {
				ended = true
				stop()
			}
		})
		if err != nil && !ended {
			yield(driver.Record{}, err)
		}
	}
}

// listed looks at one file of the directory, and answers whether it belongs in
// the list.
func (s *store) listed(d *directory, name, prefix string) (driver.Record, bool, error) {
	key, ok := strings.CutSuffix(name, suffix)
	if !ok || checkKey(key) != nil {
		return driver.Record{}, false, nil
	}
	f, err := d.openToLook(key, syscall.O_RDONLY)
	if k := driver.KindOf(err); err != nil && (k == driver.Conflict || k == driver.Denied) {
		return driver.Record{}, false, nil // not ours; it must not hide the others
	}
	if err != nil || f == nil {
		return driver.Record{}, false, err
	}
	defer f.close()
	full, itsPrefix, ok := readNames(f.fd)
	if !ok { // somebody has cut it: who holds it is still to be seen
		full, itsPrefix = namesOfKey(key)
	}
	if itsPrefix != prefix {
		return driver.Record{}, false, nil
	}
	seen, err := f.look(0)
	if err != nil || len(seen.holders) == 0 {
		if driver.KindOf(err) == driver.Conflict {
			err = nil
		}
		return driver.Record{}, false, err
	}
	return s.record(seen, full), true, nil
}

func readNames(fd int) (full, prefix string, ok bool) {
	b := make([]byte, nameSize)
	got, err := readAt(fd, b, nameOffset)
	if err != nil {
		return "", "", false
	}
	return parseNames(got)
}

// namesOfKey reads the names from a key, where the file does not tell them any
// more (docs/wire.md: Names). Of a hashed one only that is known.
func namesOfKey(key string) (full, prefix string) {
	p, n, ok := strings.Cut(key, "+")
	if !ok {
		return key, ""
	}
	full, err := url.PathUnescape(n)
	prefix, perr := url.PathUnescape(p)
	if err != nil || perr != nil {
		return key, ""
	}
	return full, prefix
}

// openToLook opens a key's file, if there is one (else nil), for looking only.
func (s *store) openToLook(key string, flags int) (*file, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	d, err := s.directoryToLook()
	if err != nil {
		return nil, err
	}
	return d.openToLook(key, flags)
}

func (d *directory) openToLook(key string, flags int) (*file, error) {
	f := &file{dir: d, key: key, path: d.file(key + suffix)}
	var err error
	f.fd, err = openAt(d, key+suffix, flags|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, syscall.ENOENT):
		return nil, nil //nolint:nilnil // nil is an answer
	case err != nil:
		return nil, openFailure(f.path, err)
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(f.fd, &st); err == nil && st.Mode&syscall.S_IFMT == syscall.S_IFREG {
		f.dev, f.ino = uint64(st.Dev), st.Ino //nolint:unconvert // types differ by platform
		return f, nil
	}
	f.close()
	return nil, failf(driver.Conflict, "%s is not a regular file, so it is no lock file", f.path)
}

// sight is what a look at a file showed.
type sight struct {
	header
	holders []holder
}

type holder struct {
	entry
	slot     int
	readable bool
	broken   string
	value    string
	said     uint64 // the value's number
}

// look finds who holds a file's name, at most limit of them, and without values,
// if that is not 0. Those who were forced out are left away.
func (f *file) look(limit int) (sight, error) {
	var s sight
	found, busy, err := probe(f.fd, writeLock, lockByte, 1)
	if err != nil {
		return s, f.failure("look at", err)
	}
	var b [headerSize]byte
	got, err := readAt(f.fd, b[:], 0)
	if err != nil {
		return s, f.failure("read", err)
	}
	var state headerState
	s.header, state = parseHeader(got)
	if err := headerError(f.path, state); err != nil || !busy {
		return s, err
	}
	if found == writeLock {
		h, err := f.lookAt(headerSize, driver.Exclusive)
		if err == nil && limit == 0 {
			err = f.lookAtValue(&h)
		}
		s.holders = append(s.holders, h)
		return s, err
	}
	if state != headerGood { // how many slots there are is lost
		live, err := f.liveSlots()
		if live {
			s.holders = append(s.holders, unreadable(driver.Shared))
		}
		return s, err
	}
	for slot := 1; slot <= s.slots && (limit == 0 || len(s.holders) < limit); slot++ {
		switch _, live, err := probe(f.fd, writeLock, slotByte+int64(slot), 1); {
		case err != nil:
			return s, f.failure("look at", err)
		case !live:
			continue
		}
		h, err := f.lookAt(slotAt(slot), driver.Shared)
		if err != nil {
			return s, err
		}
		if h.slot = slot; h.broken != forcedMark {
			s.holders = append(s.holders, h)
		}
	}
	return s, nil
}

// forcedMark stands for a break that cannot be a person's reason.
const forcedMark = "\x00"

// tornTries is how often a block is read again that was just being written.
const tornTries = 10

// lookAt reads the entry of a holder who lives.
func (f *file) lookAt(off int64, mode driver.Mode) (holder, error) {
	var b [entrySize + breakSize]byte
	for range tornTries {
		got, err := readAt(f.fd, b[:], off)
		if err != nil {
			return holder{}, f.failure("read", err)
		}
		e, ok := parseEntry(got)
		if !ok {
			continue
		}
		h := holder{entry: e, readable: true}
		if r, ok := parseBreak(got[entrySize:]); ok && r.token == e.token && r.owner == e.owner {
			if h.broken = r.reason; r.force && off >= slotOffset {
				h.broken = forcedMark
			}
		}
		return h, nil
	}
	return unreadable(mode), nil
}

// unreadable is a holder of whom only the kernel knows: somebody has cut or
// overwritten his record.
func unreadable(mode driver.Mode) holder {
	return holder{entry: entry{mode: mode, label: "(the record in the lock file is damaged)"}}
}

func (s *store) record(seen sight, full string) driver.Record {
	r := driver.Record{Name: full}
	for i := range seen.holders {
		r.Mode = seen.holders[i].mode
		r.Holders = append(r.Holders, s.holder(&seen.holders[i]))
	}
	if seen.kind == kindSemaphore && len(r.Holders) > 0 {
		r.Mode, r.Limit = driver.Permits, seen.limit
	}
	return r
}

func (s *store) holder(h *holder) driver.Holder {
	out := driver.Holder{Owner: h.owner, Label: h.label, Token: h.token, Mode: h.mode, Broken: h.broken, Value: h.value, Seq: h.said}
	if h.mode == driver.Permits {
		out.Permits = h.permits
	}
	if _, boot := s.clock(time.Now()); h.readable && boot > h.boot {
		out.Held = time.Duration(boot - h.boot)
	}
	return out
}

// firstHolder tells one of those who hold the name, nil if that cannot be told.
func (s *store) firstHolder(f *file) *driver.Holder {
	seen, err := f.look(1)
	if err != nil || len(seen.holders) == 0 || !seen.holders[0].readable {
		return nil
	}
	h := s.holder(&seen.holders[0])
	return &h
}
