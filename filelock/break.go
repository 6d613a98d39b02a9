//go:build linux || darwin

package filelock

import (
	"context"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Break implements [driver.Breaker]. It writes the break beside the holder's
// entry, who reads it at the next renewal.
//
// With Force an exclusive holder's name gets a new file, which newcomers find
// free; the holder learns at the next renewal that his has lost its name. A
// shared holder, or one of permits, ceases to count; if no other is left, the
// name gets a new file too.
func (s *store) Break(ctx context.Context, req *driver.BreakRequest) (driver.BreakStatus, error) {
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	f, err := s.openToLook(req.Name.Key, syscall.O_RDWR)
	if f == nil || err != nil {
		return driver.NotHeld, err
	}
	defer f.close()
	if e := lockSoon(ctx, f.fd, breakByte, f.path); e != nil {
		return 0, e
	}
	slot, e, status, err := f.findTarget(req)
	if status != 0 || err != nil {
		return status, err
	}
	var b [breakSize]byte
	r := revocation{token: e.token, owner: e.owner, force: req.Force, reason: req.Reason}
	putBreak(b[:], &r)
	f.slot = slot
	if err := f.write(b[:], f.entryAt()+entrySize); err != nil {
		return 0, err
	}
	if !req.Force {
		return driver.Marked, nil
	}
	return s.forceOut(ctx, f, slot, &e)
}

// findTarget finds the holder that a break is for, or answers why not.
func (f *file) findTarget(req *driver.BreakRequest) (slot int, e entry, status driver.BreakStatus, err error) {
	seen, err := f.look(0)
	if err != nil {
		return 0, e, 0, err
	}
	for _, h := range seen.holders {
		if h.readable && (req.Token == 0 || h.token == req.Token) && (req.Token != 0 || h.owner == req.Owner) {
			return h.slot, h.entry, 0, nil
		}
	}
	if len(seen.holders) == 0 {
		return 0, e, driver.NotHeld, nil
	}
	return 0, e, driver.Mismatch, nil
}

func (s *store) forceOut(ctx context.Context, f *file, slot int, e *entry) (driver.BreakStatus, error) {
	if slot == 0 {
		return s.forceOutExclusive(f, e)
	}
	f.poke() // a waiter does it, if there is one
	var again patience
	for {
		ok, err := tryLock(f.fd, writeLock, gateByte, 1)
		if err != nil {
			return 0, f.failure("lock", err)
		}
		if ok {
			break
		}
		if _, waiting, _ := probe(f.fd, writeLock, markByte, 1); waiting || !again.wait(ctx) {
			return driver.Freed, nil
		}
	}
	h, _, err := f.readHeader()
	if err != nil {
		return 0, err
	}
	out, err := s.onlyForcedOut(f, h)
	if !out || err != nil {
		return driver.Freed, err
	}
	_, err = s.replace(f, h)
	return driver.Freed, err
}

// forceOutExclusive gives the name a new file while an exclusive holder has
// the gate of the old one. Nobody can be kept from a grant there meanwhile, so
// we look last who holds it; and whoever is granted it looks last whether the
// file still has its name (see verify).
func (s *store) forceOutExclusive(f *file, e *entry) (driver.BreakStatus, error) {
	h, _, err := f.readHeader()
	if err != nil {
		return 0, err
	}
	temp, err := s.successor(f, h)
	if err != nil {
		return 0, err
	}
	defer func() {
		if temp != "" {
			_ = unlinkAt(f.dir, temp)
		}
	}()
	seen, err := f.look(1)
	switch {
	case err != nil:
		return 0, err
	case len(seen.holders) == 0:
		return driver.NotHeld, nil
	case seen.holders[0].owner != e.owner || seen.holders[0].token != e.token:
		return driver.Mismatch, nil
	}
	if named, err := f.named(); err != nil || !named { // another was quicker
		return driver.Freed, err
	}
	if err := renameAt(f.dir, temp, f.key+suffix); err != nil {
		return 0, f.failure("replace", err)
	}
	temp = ""
	blank(f.fd)
	return driver.Freed, nil
}

// replace gives the name a new file, with the gate in hand. It answers stale.
func (s *store) replace(f *file, h header) (verdict, error) {
	if ok, err := f.named(); err != nil || !ok {
		return stale, err
	}
	temp, err := s.successor(f, h)
	if err != nil {
		return 0, err
	}
	if err := renameAt(f.dir, temp, f.key+suffix); err != nil {
		_ = unlinkAt(f.dir, temp)
		return 0, f.failure("replace", err)
	}
	blank(f.fd)
	return stale, nil
}

// leap is added to the token of a file's successor, above what the old file
// can grant while it is replaced.
const leap = 1000

// successor makes the file that takes another's place, and answers its name.
func (s *store) successor(f *file, h header) (string, error) {
	micros, _ := s.clock(time.Now())
	h = header{kind: kindLock, token: max(h.token, micros) + leap}
	page := make([]byte, slotOffset)
	got, err := readAt(f.fd, page, 0)
	if err != nil {
		return "", f.failure("read", err)
	}
	page = page[:max(len(got), nameOffset)]
	clear(page[:nameOffset])
	putHeader(page, h)
	temp := tempName()
	n := &file{dir: f.dir, key: f.key, path: f.path}
	if n.fd, err = s.create(f.dir, temp); err != nil {
		return "", n.failure("replace", err)
	}
	defer n.close()
	if err := n.write(page, 0); err != nil {
		_ = unlinkAt(f.dir, temp)
		return "", err
	}
	return temp, nil
}

func forcedOut(e *entry, r *revocation) bool {
	return r.force && r.token == e.token && r.owner == e.owner
}

// onlyForcedOut tells whether all who hold slots were forced out.
func (s *store) onlyForcedOut(f *file, h header) (bool, error) {
	out := false
	for slot := 1; slot <= h.slots; slot++ {
		_, live, err := probe(f.fd, writeLock, slotByte+int64(slot), 1)
		if err != nil {
			return false, f.failure("look at", err)
		}
		if !live {
			continue
		}
		e, r, readable, err := f.readSlot(slot)
		if err != nil || !readable || !forcedOut(&e, &r) {
			return false, err
		}
		out = true
	}
	return out, nil
}
