//go:build linux || darwin

package filelock

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

// verdict is what an attempt on an open file came to.
type verdict byte

const (
	granted   verdict = iota + 1
	held              // by somebody else, or somebody waits
	unsettled         // the gate is busy for a moment: look again
	stale             // the file has lost its name: open the new one
)

// Acquire implements [driver.Store].
func (s *store) Acquire(ctx context.Context, req *driver.AcquireRequest) (driver.AcquireResult, error) {
	if err := ctx.Err(); err != nil {
		return driver.AcquireResult{}, err
	}
	res, err := s.acquire(ctx, req)
	if err != nil && isFull(err) && s.sweep(ctx, 0) > 0 {
		res, err = s.acquire(ctx, req)
	}
	return res, err
}

func (s *store) acquire(ctx context.Context, req *driver.AcquireRequest) (driver.AcquireResult, error) {
	f, early, err := s.take(req)
	if err != nil || early.Status != 0 {
		return early, err
	}
	var again patience
	for range maxOpenTries {
		if f == nil {
			if f, err = s.open(ctx, req.Name.Key); err != nil {
				return driver.AcquireResult{}, err
			}
		}
		v, err := s.try(f, req)
		if err != nil && f.outdated(err) {
			v, err = stale, nil
		}
		switch {
		case err != nil:
			s.fail(f)
			return driver.AcquireResult{}, err
		case v == granted:
			return s.keep(f, req)
		case v == stale:
			f.close()
			f = nil
		case v == held, !again.wait(ctx):
			res := driver.AcquireResult{Status: driver.Held}
			res.Queue.Holder = s.firstHolder(f)
			s.putIdle(f)
			return res, ctx.Err()
		}
	}
	if f != nil {
		f.close()
	}
	return driver.AcquireResult{}, comesAndGoes(s.path + "/" + req.Name.Key + suffix)
}

// take finds the file to make an attempt on, nil if one has to be opened, or
// the answer that needs none.
func (s *store) take(req *driver.AcquireRequest) (*file, driver.AcquireResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, driver.AcquireResult{}, s.errClosed()
	case s.held[req.Owner] != nil: // a repetition
		return nil, driver.AcquireResult{Status: driver.Granted, Grant: driver.Grant{Token: s.held[req.Owner].token}}, nil
	case s.gone.has(req.Owner):
		return nil, driver.AcquireResult{Status: driver.Gone}, nil
	}
	return s.idle.take(req.Name.Key), driver.AcquireResult{}, nil
}

// keep enters a grant, unless the owner was abandoned or the store closed in
// the meantime.
func (s *store) keep(f *file, req *driver.AcquireRequest) (driver.AcquireResult, error) {
	s.mu.Lock()
	closed, gone := s.closed, s.gone.has(req.Owner)
	if !closed && !gone {
		s.held[req.Owner] = f
	}
	s.mu.Unlock()
	switch {
	case closed:
		s.undo(f)
		return driver.AcquireResult{}, s.errClosed()
	case gone:
		s.undo(f)
		return driver.AcquireResult{Status: driver.Gone}, nil
	}
	return driver.AcquireResult{Status: driver.Granted, Grant: driver.Grant{Token: f.token}}, nil
}

// undo gives back a grant that nobody got.
func (s *store) undo(f *file) {
	s.letGo(f)
	s.putIdle(f)
}

// fail ends an attempt that met an error, and leaves no file behind that this
// attempt made.
func (s *store) fail(f *file) {
	free(f.fd, 0, toEnd)
	if f.made {
		s.removeUnused(f)
	}
	f.close()
}

// putIdle keeps a file, in which nothing is locked, for the next time.
func (s *store) putIdle(f *file) {
	f.hold = hold{label: f.label, quoted: f.quoted}
	s.mu.Lock()
	evicted := f
	if !s.closed {
		evicted = s.idle.put(f)
	}
	s.mu.Unlock()
	if evicted != nil {
		evicted.close()
	}
}

// try makes one attempt and never blocks. Unless it answers granted, nothing
// is locked afterwards.
func (s *store) try(f *file, req *driver.AcquireRequest) (verdict, error) {
	if req.Mode == driver.Exclusive {
		switch ok, err := tryLock(f.fd, writeLock, gateByte, 2); {
		case err != nil:
			return 0, f.failure("lock", err)
		case ok:
			v, err := s.grantExclusive(f, req)
			if v != granted {
				free(f.fd, 0, toEnd)
			}
			return v, err
		}
	}
	ok, err := tryLock(f.fd, writeLock, gateByte, 1)
	if err != nil {
		return 0, f.failure("lock", err)
	}
	if !ok {
		return s.whyBusy(f, req)
	}
	v, err := s.tryAtGate(f, req)
	if v != granted {
		free(f.fd, 0, toEnd)
	}
	return v, err
}

// tryAtGate makes an attempt with the gate in hand. Unless it answers granted,
// the gate stays, and nothing but it (and the mark) is locked.
func (s *store) tryAtGate(f *file, req *driver.AcquireRequest) (v verdict, err error) {
	how := int16(readLock)
	if req.Mode == driver.Exclusive {
		how = writeLock
	}
	ok, err := tryLock(f.fd, how, lockByte, 1)
	switch {
	case err != nil:
		return 0, f.failure("lock", err)
	case !ok:
		return s.whyHeld(f, req, true)
	case req.Mode == driver.Exclusive:
		v, err = s.grantExclusive(f, req)
	default:
		v, err = s.grantSlot(f, req)
	}
	if v != granted {
		free(f.fd, lockByte, toEnd)
	}
	return v, err
}

// outdated tells whether a refusal is of a file that has lost its name, which
// says nothing of the name.
func (f *file) outdated(err error) bool {
	if driver.KindOf(err) != driver.Conflict {
		return false
	}
	named, err := f.named()
	return err == nil && !named
}

// whyBusy tells why the gate is taken: for as long as a hold or a wait lasts,
// or for a moment.
func (s *store) whyBusy(f *file, req *driver.AcquireRequest) (verdict, error) {
	_, exclusive, err := probe(f.fd, readLock, lockByte, 1)
	if err != nil {
		return 0, f.failure("look at", err)
	}
	if exclusive {
		if req.Mode == driver.Permits {
			return 0, conflict(f, "is held as a lock, not as a semaphore")
		}
		return s.heldOrStale(f)
	}
	_, waiting, err := probe(f.fd, writeLock, markByte, 1)
	switch {
	case err != nil:
		return 0, f.failure("look at", err)
	case waiting: // so nobody grants, and the header stands
		return s.whyHeld(f, req, false)
	}
	return unsettled, nil
}

// whyHeld tells, when we or a waiter have the gate and so keep the record as it
// is, whether the name is held as what is asked for. If all who hold it were
// forced out, whoever has the gate gives the name a new file.
func (s *store) whyHeld(f *file, req *driver.AcquireRequest, gate bool) (verdict, error) {
	h, _, err := f.readHeader()
	if err != nil {
		return 0, err
	}
	out, err := s.onlyForcedOut(f, h)
	switch {
	case err != nil:
		return 0, err
	case out && gate:
		return s.replace(f, h)
	case out: // whoever has the gate will
		return held, nil
	}
	if err := kindConflict(f, h, req); err != nil {
		return 0, err
	}
	return s.heldOrStale(f)
}

// heldOrStale answers held, unless the file has lost its name: then the name
// may be free.
func (s *store) heldOrStale(f *file) (verdict, error) {
	ok, err := f.named()
	if err != nil || ok {
		return held, err
	}
	return stale, nil
}

func kindConflict(f *file, h header, req *driver.AcquireRequest) error {
	switch {
	case h.kind == kindLock && req.Mode == driver.Permits:
		return conflict(f, "is held as a lock, not as a semaphore")
	case h.kind == kindSemaphore && req.Mode != driver.Permits:
		return conflict(f, "is held as a semaphore, not as a lock")
	case h.kind == kindSemaphore && h.limit != req.Limit:
		return failf(driver.Conflict, "%s is held as a semaphore of limit %d, not %d", f.path, h.limit, req.Limit)
	}
	return nil
}

func conflict(f *file, text string) error { return failf(driver.Conflict, "%s %s", f.path, text) }
