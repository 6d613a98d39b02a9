//go:build linux || darwin

package filelock

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// gateWait is a goroutine that is blocked in the kernel at a name's gate. The
// kernel keeps such waiters in order and wakes one at a time; but nothing
// short of a signal to the thread calls one off. So one whose Block was
// cancelled becomes a ghost: the next Block of the name adopts it; without one
// it closes its file as soon as it gets the gate, which is when the gate is
// next freed. It takes nothing: only the gate is locked, for microseconds and
// without a mark, which an attempt of anybody else looks at twice.
type gateWait struct {
	f    *file
	done chan struct{} // closed when the kernel has answered

	// Under the store's mu.
	err   error
	ended bool
	ghost bool
}

const (
	// maxParked bounds the threads of a store that are blocked in the kernel:
	// beyond it Block answers ErrNoRoom.
	maxParked = 256
	// watchAfter is how long a wait lasts before it is worth while to watch
	// for the file's end.
	watchAfter = 20 * time.Millisecond
)

// waitForGate returns the file of the request's name with its gate locked, nil
// if the file has lost its name meanwhile.
func (s *store) waitForGate(ctx context.Context, w *wait) (*file, error) {
	g := s.adopt(w.req.Name.Key)
	if g == nil {
		f, err := s.fileToWait(ctx, w.req.Name.Key)
		if err != nil {
			return nil, err
		}
		ok, err := tryLock(f.fd, writeLock, gateByte, 1)
		switch {
		case err != nil:
			f.close()
			return nil, f.failure("lock", err)
		case ok:
			return s.settled(f)
		}
		if g = s.park(f); g == nil {
			s.putIdle(f)
			return nil, driver.ErrNoRoom
		}
	}
	return s.awaitGate(ctx, w, g)
}

func (s *store) fileToWait(ctx context.Context, key string) (*file, error) {
	s.mu.Lock()
	f := s.idle.take(key)
	s.mu.Unlock()
	if f != nil {
		return f, nil
	}
	return s.open(ctx, key)
}

// settled checks that a file, whose gate we have, still has its name.
func (s *store) settled(f *file) (*file, error) {
	ok, err := f.named()
	if ok && err == nil {
		return f, nil
	}
	f.close()
	return nil, err
}

// park blocks a goroutine at the gate of a file; nil if too many are.
func (s *store) park(f *file) *gateWait {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.parked >= maxParked || s.closed {
		return nil
	}
	s.parked++
	g := &gateWait{f: f, done: make(chan struct{})}
	// Those who take the name again and again look for this lock.
	_, _ = tryLock(f.fd, readLock, crowdByte, 1)
	go s.block(g)
	return g
}

func (s *store) block(g *gateWait) {
	err := waitLock(g.f.fd, writeLock, gateByte, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parked--
	g.err, g.ended = err, true
	if g.ghost {
		if s.ghosts[g.f.key] == g {
			delete(s.ghosts, g.f.key)
		}
		g.f.close()
	}
	close(g.done)
}

// adopt takes over the ghost of a key, if there is one.
func (s *store) adopt(key string) *gateWait {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.ghosts[key]
	if g == nil || s.closed {
		return nil
	}
	delete(s.ghosts, key)
	g.ghost = false
	_, _ = tryLock(g.f.fd, readLock, crowdByte, 1)
	return g
}

// leave turns a wait into a ghost, or gives the gate back if it has just come.
func (s *store) leave(g *gateWait, adoptable bool) {
	s.mu.Lock()
	if g.ended {
		s.mu.Unlock()
		free(g.f.fd, 0, toEnd)
		s.putIdle(g.f)
		return
	}
	g.ghost = true
	free(g.f.fd, crowdByte, 1)
	if adoptable && s.ghosts[g.f.key] == nil {
		s.ghosts[g.f.key] = g
	}
	s.mu.Unlock()
}

// awaitGate waits until the goroutine at the gate gets it.
func (s *store) awaitGate(ctx context.Context, w *wait, g *gateWait) (*file, error) {
	timer := time.NewTimer(watchAfter)
	defer timer.Stop()
	var bell *bell
	defer func() { bell.stop() }()
	for {
		select {
		case <-g.done:
			return s.gotGate(g)
		case <-timer.C:
			if bell == nil {
				bell = s.watcher.watch(g.f.fd, wakeOnRemoval)
			}
		case <-bell.ringing():
		case <-ctx.Done():
			s.leave(g, true)
			return nil, ctx.Err()
		case <-w.abandoned:
			s.leave(g, true)
			return nil, errAbandoned()
		case <-s.done:
			s.leave(g, false)
			return nil, s.errClosed()
		}
		if ok, err := g.f.named(); err != nil || !ok {
			s.leave(g, false) // the name has another file
			return nil, err
		}
		timer.Reset(bell.patience())
	}
}

func (s *store) gotGate(g *gateWait) (*file, error) {
	if g.err != nil {
		g.f.close()
		return nil, g.f.failure("lock", g.err)
	}
	free(g.f.fd, crowdByte, 1)
	return s.settled(g.f)
}
