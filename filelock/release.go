//go:build linux || darwin

package filelock

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Release implements [driver.Store]. The locks are freed by an explicit call,
// so that inherited duplicates of the descriptor hold nothing any more.
func (s *store) Release(_ context.Context, req *driver.ReleaseRequest) (bool, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return false, s.errClosed()
	}
	if req.Abandon {
		s.gone.add(req.Owner, time.Now())
		if w := s.waits[req.Owner]; w != nil {
			w.abandon()
		}
	}
	f := s.held[req.Owner]
	if f == nil || !f.is(&req.Ref) {
		s.mu.Unlock()
		return false, nil
	}
	delete(s.held, req.Owner)
	s.mu.Unlock()

	now := time.Now()
	ours, err := s.stillOurs(f, now)
	s.letGo(f)
	if !ours || f.inherited {
		f.close()
		return ours, err
	}
	f.released = now
	s.putIdle(f)
	return true, nil
}

// is tells whether a reference means the file's hold.
func (f *file) is(r *driver.Ref) bool {
	return f.owner == r.Owner && (r.Token == 0 || r.Token == f.token) && (r.Name.Key == "" || r.Name.Key == f.key)
}

// stillOurs tells whether the hold was not forced out.
func (s *store) stillOurs(f *file, now time.Time) (bool, error) {
	if now.Sub(f.verified) >= recheck {
		ok, err := f.named()
		if err != nil || !ok {
			return false, err
		}
		f.verified = now
	}
	if f.mode == driver.Exclusive { // forced out by a new file only
		return true, nil
	}
	r, err := f.revocation()
	return err == nil && (r == nil || !r.force), err
}

// letGo ends the hold, and wakes who waits for it.
func (s *store) letGo(f *file) {
	if f.mode == driver.Permits {
		// Others count permits by the entries. If this fails they find out by
		// the lock.
		_ = f.freeSlot(f.slot, entry{mode: f.mode, token: f.token, owner: f.owner, pid: pid, label: f.label})
	}
	free(f.fd, 0, toEnd)
	if f.mode != driver.Exclusive {
		f.poke()
	}
}

// poke wakes who waits for the lock with the gate in hand. Those who are parked
// at the gate the kernel wakes.
func (f *file) poke() {
	if _, waiting, err := probe(f.fd, writeLock, markByte, 1); err == nil && waiting {
		_ = f.write([]byte("\n"), pokeOffset) // a waiter looks by himself too, only later
	}
}

// tombstone life: for so long an abandoned owner gets nothing.
const tombstoneLife = 10 * time.Second

// tombstones are the owners that were abandoned, oldest first.
type tombstones struct {
	until map[driver.Owner]time.Time
	order []driver.Owner
}

func (t *tombstones) has(o driver.Owner) bool {
	_, ok := t.until[o]
	return ok
}

// add enters an owner, and drops those whose time is over.
func (t *tombstones) add(o driver.Owner, now time.Time) {
	for len(t.order) > 0 && now.After(t.until[t.order[0]]) {
		delete(t.until, t.order[0])
		t.order = t.order[1:]
	}
	if t.until == nil {
		t.until = map[driver.Owner]time.Time{}
	}
	if !t.has(o) {
		t.order = append(t.order, o)
		t.until[o] = now.Add(tombstoneLife)
	}
}
