//go:build linux || darwin

package filelock

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// wait is one call of Block.
type wait struct {
	req       *driver.AcquireRequest
	abandoned chan struct{}
}

// abandon ends the wait; under the store's mu.
func (w *wait) abandon() {
	select {
	case <-w.abandoned:
	default:
		close(w.abandoned)
	}
}

func errAbandoned() error { return failf(driver.Canceled, "the owner was abandoned") }

// Block implements [driver.Blocker]: first an attempt, then a wait for the
// gate, in which the kernel keeps the order, then one for the lock or the
// permits with the gate in hand, so that nobody overtakes.
func (s *store) Block(ctx context.Context, req *driver.AcquireRequest) (driver.Grant, error) {
	res, err := s.Acquire(ctx, req)
	if err == nil && res.Status == driver.Held {
		w := &wait{req: req, abandoned: make(chan struct{})}
		s.enter(w)
		defer s.leaveWait(w)
		for err == nil && res.Status == driver.Held {
			// Held also means that a file has lost its name: then try anew.
			if res, err = s.waitInLine(ctx, w); err == nil && res.Status == driver.Held {
				res, err = s.Acquire(ctx, req)
			}
		}
	}
	switch {
	case err != nil:
		return driver.Grant{}, err
	case res.Status == driver.Gone:
		return driver.Grant{}, errAbandoned()
	}
	return res.Grant, nil
}

// enter lets Release find the wait, to end it.
func (s *store) enter(w *wait) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits[w.req.Owner] = w
	if s.gone.has(w.req.Owner) { // it came between the attempt and now
		w.abandon()
	}
}

func (s *store) leaveWait(w *wait) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waits, w.req.Owner)
}

// waitInLine waits until the request is granted, or for nothing on a file that
// has lost its name: then it answers held.
func (s *store) waitInLine(ctx context.Context, w *wait) (driver.AcquireResult, error) {
	f, err := s.waitForGate(ctx, w)
	if f == nil || err != nil {
		return driver.AcquireResult{Status: driver.Held}, err
	}
	f.released = time.Time{} // it waited: a new turn
	v, err := s.waitAtGate(ctx, w, f)
	switch {
	case err != nil:
		s.fail(f)
		return driver.AcquireResult{}, err
	case v == granted:
		return s.keep(f, w.req)
	default:
		f.close()
		return driver.AcquireResult{Status: driver.Held}, nil
	}
}

const (
	// What a waiter looks at by himself, if nobody wakes him.
	firstLook = 100 * time.Microsecond
	lastLook  = 20 * time.Millisecond
	// lastLookWoken is for those whom writes to the file wake.
	lastLookWoken = 200 * time.Millisecond
)

// waitAtGate waits, with the gate in hand, until the request can be granted.
// The mark tells others that the gate is taken for long.
func (s *store) waitAtGate(ctx context.Context, w *wait, f *file) (verdict, error) {
	v, err := s.tryAtGate(f, w.req)
	if v != held || err != nil {
		return v, err
	}
	if _, err := tryLock(f.fd, writeLock, markByte, 1); err != nil {
		return 0, f.failure("lock", err)
	}
	bell := s.watcher.watch(f.fd, wakeOnRelease)
	defer bell.stop()
	timer := time.NewTimer(firstLook)
	defer timer.Stop()
	for pause := firstLook; ; {
		// Only now: who frees the lock after this look sees the mark.
		v, err := s.tryAtGate(f, w.req)
		if v != held || err != nil {
			if v == granted {
				free(f.fd, markByte, 1)
			}
			return v, err
		}
		select {
		case <-timer.C:
			pause = min(2*pause, bell.patience())
		case <-bell.rings:
			// A holder who dies rings before the kernel frees his locks.
			pause = firstLook
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-w.abandoned:
			return 0, errAbandoned()
		case <-s.done:
			return 0, s.errClosed()
		}
		timer.Reset(pause)
	}
}
