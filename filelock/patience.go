//go:build linux || darwin

package filelock

import (
	"context"
	"runtime"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// maxLooks bounds how often an attempt looks again at a gate that is busy
	// for no reason that lasts: whoever has it needs microseconds, unless he is
	// stopped or waits for a processor. Looks are counted, since time alone
	// says little on a busy machine; on an idle one they take 0.2 s.
	maxLooks   = 220
	spins      = 20
	firstPause = 50 * time.Microsecond
	lastPause  = time.Millisecond
)

// patience paces the second looks of an attempt that must not block.
type patience struct {
	looks int
	pause time.Duration
}

// wait returns true when it is time to look again, false when the patience or
// ctx has ended.
func (p *patience) wait(ctx context.Context) bool {
	if p.looks++; p.looks <= spins {
		runtime.Gosched()
		return true
	}
	if p.looks > maxLooks {
		return false
	}
	p.pause = max(p.pause, firstPause)
	timer := time.NewTimer(p.pause)
	defer timer.Stop()
	p.pause = min(2*p.pause, lastPause)
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// lockSoon locks a byte that others lock for moments only. It does not outwait
// one who was stopped meanwhile: patience ends, and so may ctx.
func lockSoon(ctx context.Context, fd int, b int64, path string) error {
	var again patience
	for {
		switch ok, err := tryLock(fd, writeLock, b, 1); {
		case err != nil:
			return failure("lock", path, err)
		case ok:
			return nil
		}
		if !again.wait(ctx) {
			break
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return failf(driver.Unavailable, "lock %s: another process has been writing it for too long; it may have been stopped", path)
}
