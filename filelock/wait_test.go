//go:build linux

package filelock

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

func TestCancelledWriterLetsReadersIn(t *testing.T) {
	t.Parallel()
	c := openStore(t, t.TempDir(), nil)
	c.hold("k", driver.Shared)
	w := c.wait("k", driver.Exclusive)
	until(t, "the writer waits", func() bool { return gateWaited(c.path, "k") })
	w.cancel()
	if err := w.ended(t); !errors.Is(err, context.Canceled) || c.Classify(err) != driver.Canceled {
		t.Fatal(err)
	}
	c.hold("k", driver.Shared)
}

func TestAbandon(t *testing.T) {
	t.Parallel()
	c := openStore(t, t.TempDir(), nil)
	g := c.hold("k", driver.Exclusive)
	w := c.wait("k", driver.Exclusive)
	until(t, "waiting", func() bool { return crowded(c.path, "k") })
	abandon := func(o driver.Owner) (bool, error) {
		return c.Release(t.Context(), &driver.ReleaseRequest{Ref: driver.Ref{Name: g.ref.Name, Owner: o}, Abandon: true})
	}
	if ok, err := abandon(w.req.Owner); ok || err != nil {
		t.Fatal(ok, err)
	}
	if err := w.ended(t); err == nil {
		t.Fatal("granted")
	}
	if ok, err := abandon(g.ref.Owner); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if res, err := c.Acquire(t.Context(), w.req); err != nil || res.Status != driver.Gone {
		t.Fatal(res, err)
	}
	unknown := request("k", driver.Exclusive)
	if ok, err := abandon(unknown.Owner); ok || err != nil {
		t.Fatal(ok, err)
	}
	if _, err := c.Block(t.Context(), unknown); c.Classify(err) != driver.Canceled {
		t.Fatal(err)
	}
	c.hold("k", driver.Exclusive)
}

// Who is parked holds nothing.
func TestParkedIsNoHolder(t *testing.T) {
	t.Parallel()
	c := openStore(t, t.TempDir(), nil)
	c.hold("k", driver.Exclusive).release()
	lockByteOf(t, c.path+"/k.lock", crowdByte)
	c.hold("k", driver.Permits, 1, 2).release()
	if err := os.WriteFile(c.path+"/k.lock", []byte(magic), 0o600); err != nil { // torn
		t.Fatal(err)
	}
	c.hold("k", driver.Shared)
}

func TestCancelledWaitsLeaveNothing(t *testing.T) {
	dir := t.TempDir()
	a, b := openStore(t, dir, nil), openStore(t, dir, nil)
	modes := []driver.Mode{driver.Exclusive, driver.Shared}
	for i := range 1000 {
		holder := a.hold("k", modes[i%2])
		w := b.wait("k", driver.Exclusive)
		for range rand.IntN(300) {
			runtime.Gosched()
		}
		release := i%3 == 0
		if release {
			holder.release()
		}
		w.cancel()
		if w.ended(t) == nil {
			w.grip.release()
		}
		if !release {
			a.tryShared(t, modes[i%2])
			holder.release()
		}
		a.hold("k", driver.Exclusive).release()
	}
	until(t, "goroutines at the gate end", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.parked == 0 && len(b.ghosts) == 0 && len(b.waits) == 0 && len(b.held) == 0
	})
}

// tryShared proves that a cancelled writer keeps no reader out.
func (c *client) tryShared(t *testing.T, held driver.Mode) {
	t.Helper()
	if held == driver.Shared {
		c.hold("k", driver.Shared).release()
	}
}

func TestCloseEndsWaits(t *testing.T) {
	dir := t.TempDir()
	holder, second, third := openStore(t, dir, nil), openStore(t, dir, nil), openStore(t, dir, nil)
	g := holder.hold("k", driver.Shared)
	atGate := second.wait("k", driver.Exclusive)
	until(t, "waiting at the gate", func() bool { return gateWaited(dir, "k") })
	parked := third.wait("k", driver.Exclusive)
	until(t, "parked", func() bool { return crowded(dir, "k") })
	for _, c := range []*client{third, second} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, w := range []*waiter{atGate, parked} {
		if err := w.ended(t); err == nil {
			t.Fatal("granted by a closed store")
		}
	}
	until(t, "the kernel's answer", func() bool {
		third.mu.Lock()
		defer third.mu.Unlock()
		return third.parked == 0
	})
	holder.hold("k", driver.Shared).release()
	g.release()
	holder.hold("k", driver.Exclusive)
}

// Without inotify waiters look by themselves.
func TestWaitWithoutInotify(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := openStore(t, dir, nil), openStore(t, dir, nil)
	b.watcher.failed = true
	for _, modes := range [][2]driver.Mode{
		{driver.Exclusive, driver.Exclusive}, {driver.Exclusive, driver.Shared}, {driver.Shared, driver.Exclusive},
	} {
		g := a.hold("k", modes[0])
		w := b.wait("k", modes[1])
		until(t, "waiting", func() bool { return crowded(dir, "k") || gateWaited(dir, "k") })
		g.release()
		w.granted(t).release()
	}
}

func TestNoRoomToPark(t *testing.T) {
	t.Parallel()
	c := openStore(t, t.TempDir(), nil)
	c.parked = maxParked
	g := c.hold("k", driver.Exclusive)
	if _, err := c.Block(t.Context(), request("k", driver.Exclusive)); !errors.Is(err, driver.ErrNoRoom) {
		t.Fatal(err)
	}
	g.release()
	c.hold("k", driver.Exclusive)
}
