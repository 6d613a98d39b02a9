//go:build linux || darwin

package filelock

import (
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// grantSlot grants a shared hold or permits, with the gate in hand and the
// lock read-locked: so only holders of slots write, each in his own.
func (s *store) grantSlot(f *file, req *driver.AcquireRequest) (verdict, error) {
	h, state, err := f.readHeader()
	if err != nil {
		return 0, err
	}
	if state != headerGood {
		ok, e := f.named()
		if e != nil || !ok {
			return stale, e
		}
		f.verified = time.Time{}
	}
	want := header{kind: kindLock, token: h.token, slots: h.slots}
	if req.Mode == driver.Permits {
		want.kind, want.limit = kindSemaphore, req.Limit
	}
	if h.kind != want.kind || h.limit != want.limit || h.slots > 8 {
		live, e := f.liveSlots()
		if e != nil {
			return 0, e
		}
		if !live {
			want.slots = 0
		} else if v, e := s.checkLive(f, h, state, req); v != granted {
			return v, e
		}
	}
	slot, err := s.pickSlot(f, &want, req)
	if slot == 0 {
		return held, err
	}
	return s.writeSlot(f, req, want, state, slot)
}

// checkLive answers granted if the holders of slots are compatible with the
// request, as far as their kind goes.
func (s *store) checkLive(f *file, h header, state headerState, req *driver.AcquireRequest) (verdict, error) {
	if state != headerGood {
		return 0, failf(driver.Unavailable, "%s is damaged, and held: nobody gets it until it is released", f.path)
	}
	conflict := kindConflict(f, h, req)
	if conflict == nil {
		return granted, nil
	}
	switch out, err := s.onlyForcedOut(f, h); {
	case err != nil:
		return 0, err
	case out:
		return s.replace(f, h)
	}
	return 0, conflict
}

// liveSlots tells whether anybody holds a slot.
func (f *file) liveSlots() (bool, error) {
	_, live, err := probe(f.fd, writeLock, slotByte+1, maxSlots) // not crowdByte
	if err != nil {
		return false, f.failure("look at", err)
	}
	return live, nil
}

func (s *store) writeSlot(f *file, req *driver.AcquireRequest, h header, state headerState, slot int) (verdict, error) {
	now := time.Now()
	micros, boot := s.clock(now)
	token, err := s.mint(f, h, state, micros)
	if err != nil {
		return 0, err
	}
	s.fill(f, req, token, boot)
	f.slot, h.token = slot, token
	if e := f.write(f.state[headerSize:], slotAt(slot)); e != nil {
		return 0, e
	}
	putHeader(f.head[:], h)
	if state == headerGood {
		err = f.write(f.head[:], 0)
	} else {
		err = f.writeFirst(f.head[:], req.Name)
	}
	if err != nil {
		return 0, err
	}
	v, err := s.verify(f, now)
	if v == granted {
		free(f.fd, markByte, 2) // and the gate
	}
	return v, err
}

func slotAt(slot int) int64 { return slotOffset + int64(slot-1)*slotStride }

// pickSlot locks a slot for the request and answers its number; 0 if a
// semaphore has too few permits left.
func (s *store) pickSlot(f *file, h *header, req *driver.AcquireRequest) (int, error) {
	if req.Mode == driver.Permits {
		t, err := f.readTable(*h, req.N)
		if err != nil || t.used+req.N > req.Limit {
			return 0, err
		}
		for _, slot := range t.free {
			if ok, err := f.lockSlot(slot); ok || err != nil {
				return slot, err
			}
		}
		return f.newSlot(h)
	}
	// Readers do not count, so any slot will do: a few first ones, a few
	// others, a new one.
	for i := range 16 {
		slot := i + 1
		if slot > 8 {
			slot = 1 + rand.IntN(max(h.slots, 1))
		}
		if slot > h.slots {
			break
		}
		if ok, err := f.lockSlot(slot); ok || err != nil {
			return slot, err
		}
	}
	return f.newSlot(h)
}

func (f *file) newSlot(h *header) (int, error) {
	for h.slots < maxSlots {
		h.slots++
		if ok, err := f.lockSlot(h.slots); ok || err != nil {
			return h.slots, err
		}
	}
	return 0, failf(driver.Unavailable, "%s is held %d times: there is no room for more", f.path, maxSlots)
}

func (f *file) lockSlot(slot int) (bool, error) {
	ok, err := tryLock(f.fd, writeLock, slotByte+int64(slot), 1)
	if err != nil {
		err = f.failure("lock", err)
	}
	return ok, err
}

// table is what a semaphore's slots say.
type table struct {
	used int
	free []int // slots that nobody uses
}

// readTable adds up the permits that are held. First it believes the entries:
// they may say too much, of holders who died, but never too little. Only if
// that leaves too few permits does it ask the kernel who lives.
func (f *file) readTable(h header, n int) (table, error) {
	var t table
	var doubtful []int
	err := f.eachSlot(h.slots, func(slot int, e entry, r revocation, readable bool) {
		switch {
		case !readable:
			t.used += h.limit // what he has is unknown
		case e.free || e.mode != driver.Permits || forcedOut(&e, &r):
			t.free = append(t.free, slot)
			return
		default:
			t.used += e.permits
		}
		doubtful = append(doubtful, slot)
	})
	if err != nil || t.used+n <= h.limit {
		return t, err
	}
	err = f.buryDead(h, doubtful, &t)
	return t, err
}

// buryDead marks the slots free whose holders died.
func (f *file) buryDead(h header, slots []int, t *table) error {
	for _, slot := range slots {
		ok, err := f.lockSlot(slot)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		e, _, readable, err := f.readSlot(slot)
		if err != nil {
			return err
		}
		if readable {
			t.used -= e.permits
		} else {
			t.used -= h.limit
		}
		err = f.freeSlot(slot, entry{mode: driver.Permits})
		free(f.fd, slotByte+int64(slot), 1)
		if err != nil {
			return err
		}
		t.free = append(t.free, slot)
	}
	return nil
}

// freeSlot writes that a slot is free.
func (f *file) freeSlot(slot int, e entry) error {
	var b [entrySize]byte
	e.free = true
	putEntry(b[:], &e, quote(e.label, entrySize-1-entryLabel))
	return f.write(b[:], slotAt(slot))
}

// readSlot reads one slot: who is in it, and whether that was revoked.
func (f *file) readSlot(slot int) (e entry, r revocation, readable bool, err error) {
	var b [entrySize + breakSize]byte
	got, err := readAt(f.fd, b[:], slotAt(slot))
	if err != nil {
		return e, r, false, f.failure("read", err)
	}
	e, r, readable = parseSlot(got)
	return e, r, readable, nil
}

// parseSlot parses an entry and what follows it. A slot that was never written,
// or was cut off the file, is not readable: only the kernel knows who is in it.
func parseSlot(b []byte) (entry, revocation, bool) {
	if len(b) < entrySize {
		return entry{}, revocation{}, false
	}
	e, ok := parseEntry(b)
	r, _ := parseBreak(b[entrySize:])
	return e, r, ok
}

// slotsAtOnce bounds the memory of a look at the table.
const slotsAtOnce = 32

func (f *file) eachSlot(slots int, visit func(slot int, e entry, r revocation, readable bool)) error {
	if slots == 0 {
		return nil
	}
	buf := make([]byte, min(slots, slotsAtOnce)*slotStride)
	for first := 1; first <= slots; first += slotsAtOnce {
		n := min(slots-first+1, slotsAtOnce)
		got, err := readAt(f.fd, buf[:n*slotStride], slotAt(first))
		if err != nil {
			return f.failure("read", err)
		}
		for i := range n {
			b := got[min(i*slotStride, len(got)):min((i+1)*slotStride, len(got))]
			e, r, ok := parseSlot(b)
			visit(first+i, e, r, ok)
		}
	}
	return nil
}
