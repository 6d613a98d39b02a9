//go:build linux || darwin

package filelock

import (
	"context"
	"errors"
	"iter"
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
	fd, err := s.openToLook(n.Key, syscall.O_RDONLY)
	if err != nil || fd < 0 {
		return driver.Record{Name: n.Full}, err
	}
	defer closeFD(fd)
	seen, err := look(fd, s.dir.Load().file(n.Key+suffix), 0)
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
		err := s.dir.Load().eachName(listing, func(name string) {
			r, ok, err := s.listed(name, prefix)
			if (ok || err != nil) && !yield(r, err) || err != nil {
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
func (s *store) listed(name, prefix string) (driver.Record, bool, error) {
	key, ok := strings.CutSuffix(name, suffix)
	if !ok || checkKey(key) != nil {
		return driver.Record{}, false, nil
	}
	fd, err := s.openToLook(key, syscall.O_RDONLY)
	if k := driver.KindOf(err); err != nil && (k == driver.Conflict || k == driver.Denied) {
		return driver.Record{}, false, nil // not ours; it must not hide the others
	}
	if err != nil || fd < 0 {
		return driver.Record{}, false, err
	}
	defer closeFD(fd)
	full, itsPrefix, ok := readNames(fd)
	if !ok || itsPrefix != prefix {
		return driver.Record{}, false, nil
	}
	seen, err := look(fd, s.dir.Load().file(name), 0)
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

// openToLook opens a key's file, if there is one (else -1), for looking only.
func (s *store) openToLook(key string, flags int) (int, error) {
	if err := checkKey(key); err != nil {
		return -1, err
	}
	d := s.dir.Load()
	fd, err := openAt(d, key+suffix, flags|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ENOENT) {
		if !s.reopen(d) {
			return -1, nil
		}
		d = s.dir.Load()
		if fd, err = openAt(d, key+suffix, flags|syscall.O_NONBLOCK, 0); errors.Is(err, syscall.ENOENT) {
			return -1, nil
		}
	}
	if err != nil {
		return -1, openFailure(d.file(key+suffix), err)
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err == nil && st.Mode&syscall.S_IFMT == syscall.S_IFREG {
		return fd, nil
	}
	closeFD(fd)
	return -1, failf(driver.Conflict, "%s is not a regular file, so it is no lock file", d.file(key+suffix))
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
}

// look finds who holds a file's name, at most limit of them if that is not 0.
// Those who were forced out are left away.
func look(fd int, path string, limit int) (sight, error) {
	var s sight
	found, busy, err := probe(fd, writeLock, lockByte, 1)
	if err != nil {
		return s, failure("look at", path, err)
	}
	var b [headerSize]byte
	got, err := readAt(fd, b[:], 0)
	if err != nil {
		return s, failure("read", path, err)
	}
	var state headerState
	s.header, state = parseHeader(got)
	if err := headerError(path, state); err != nil || !busy {
		return s, err
	}
	if found == writeLock {
		h, err := lookAt(fd, path, headerSize, driver.Exclusive)
		s.holders = append(s.holders, h)
		return s, err
	}
	for slot := 1; slot <= s.slots && (limit == 0 || len(s.holders) < limit); slot++ {
		switch _, live, err := probe(fd, writeLock, slotByte+int64(slot), 1); {
		case err != nil:
			return s, failure("look at", path, err)
		case !live:
			continue
		}
		h, err := lookAt(fd, path, slotAt(slot), driver.Shared)
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
func lookAt(fd int, path string, off int64, mode driver.Mode) (holder, error) {
	var b [entrySize + breakSize]byte
	for range tornTries {
		got, err := readAt(fd, b[:], off)
		if err != nil {
			return holder{}, failure("read", path, err)
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
	return holder{entry: entry{mode: mode, label: "(its record is not readable)"}}, nil
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
	out := driver.Holder{Owner: h.owner, Label: h.label, Token: h.token, Mode: h.mode, Broken: h.broken}
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
	seen, err := look(f.fd, f.path(), 1)
	if err != nil || len(seen.holders) == 0 || !seen.holders[0].readable {
		return nil
	}
	h := s.holder(&seen.holders[0])
	return &h
}
