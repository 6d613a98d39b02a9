//go:build linux

package filelock

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

func (c *client) breakHold(g *grip, force bool) driver.BreakStatus {
	c.tb.Helper()
	status, err := c.Break(c.tb.Context(), &driver.BreakRequest{Name: g.ref.Name, Token: g.token, Reason: "stuck (by ops)", Force: force})
	if err != nil {
		c.tb.Fatal(err)
	}
	return status
}

func TestBreak(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]*driver.AcquireRequest{
		"exclusive": request("k", driver.Exclusive), "shared": request("k", driver.Shared), "permits": request("k", driver.Permits, 3, 3),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			a, b := openStore(t, dir, nil), openStore(t, dir, nil)
			res, err := a.Acquire(t.Context(), ask)
			if err != nil || res.Status != driver.Granted {
				t.Fatal(res, err)
			}
			g := gripOf(a, ask, res.Grant)
			wrong := *g
			wrong.token++
			if status := b.breakHold(&wrong, true); status != driver.Mismatch {
				t.Fatal(status)
			}
			if r := g.renew(); r.Status != driver.Renewed {
				t.Fatalf("%+v", r)
			}
			if status := b.breakHold(g, false); status != driver.Marked {
				t.Fatal(status)
			}
			if ask.Mode == driver.Permits {
				b.mustBeHeld("k", driver.Permits, 1, 3)
			} else {
				b.mustBeHeld("k", driver.Exclusive)
			}
			if r := g.renew(); r.Status != driver.Broken || r.Reason != "stuck (by ops)" {
				t.Fatalf("%+v", r)
			}
			if r, err := b.Inspect(t.Context(), g.ref.Name); err != nil || r.Holders[0].Broken != "stuck (by ops)" {
				t.Fatalf("%+v %v", r, err)
			}
			g.release()
			if status := b.breakHold(g, false); status != driver.NotHeld {
				t.Fatal(status)
			}
			next := b.hold("k", ask.Mode, 1, 3)
			if r := next.renew(); r.Status != driver.Renewed { // the old break is not his
				t.Fatalf("%+v", r)
			}
		})
	}
}

func TestForce(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]*driver.AcquireRequest{
		"exclusive": request("k", driver.Exclusive), "shared": request("k", driver.Shared), "permits": request("k", driver.Permits, 3, 3),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			a, b := openStore(t, dir, nil), openStore(t, dir, nil)
			res, err := a.Acquire(t.Context(), ask)
			if err != nil || res.Status != driver.Granted {
				t.Fatal(res, err)
			}
			g := gripOf(a, ask, res.Grant)
			w := b.wait("k", driver.Exclusive)
			if ask.Mode == driver.Permits { // a lock would be a conflict
				_ = w.ended(t)
				w = b.wait("k", driver.Permits, 3, 3)
			}
			until(t, "waiting", func() bool { return crowded(dir, "k") || gateWaited(dir, "k") })
			if status := b.breakHold(g, true); status != driver.Freed {
				t.Fatal(status)
			}
			next := w.granted(t)
			if next.token <= g.token {
				t.Fatalf("token %d after %d", next.token, g.token)
			}
			if r := g.renew(); r.Status != driver.Lost {
				t.Fatalf("%+v", r)
			}
			if ok, err := g.free(); ok || err != nil {
				t.Fatal(ok, err)
			}
			if r := next.renew(); r.Status != driver.Renewed {
				t.Fatalf("%+v", r)
			}
			a.mustBeHeld("k", next.ref.Mode, 1, 3)
			if r, err := a.Inspect(t.Context(), g.ref.Name); err != nil || r.Name != g.ref.Name.Full || len(r.Holders) != 1 {
				t.Fatalf("%+v %v", r, err)
			}
			next.release()
		})
	}
}

// Who is forced out is told by whom and why, not only that the lock is lost.
func TestForceIsTold(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]*holdfast.AcquireOptions{
		"exclusive": nil, "shared": {Mode: holdfast.Shared}, "permits": {Permits: 1, Limit: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			a, b := locksOf(t, openStore(t, dir, nil)), locksOf(t, openStore(t, dir, nil))
			l, err := a.Acquire(t.Context(), "jobs/1", o)
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Break(t.Context(), "jobs/1", holdfast.BreakOptions{Token: l.Token(), Reason: "stuck since noon", By: "ann", Force: true}); err != nil {
				t.Fatal(err)
			}
			select {
			case <-l.Context().Done():
			case <-time.After(testPatience):
				t.Fatal("the holder is not told")
			}
			cause := context.Cause(l.Context())
			if !errors.Is(cause, holdfast.ErrBroken) || !errors.Is(cause, holdfast.ErrLost) || !strings.Contains(cause.Error(), "stuck since noon (by ann)") {
				t.Errorf("told %v", cause)
			}
		})
	}
}

func TestForceOneOfMany(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := openStore(t, dir, nil), openStore(t, dir, nil)
	g1, g2 := a.hold("k", driver.Permits, 2, 3), a.hold("k", driver.Permits, 1, 3)
	b.mustBeHeld("k", driver.Permits, 1, 3)
	if status := b.breakHold(g1, true); status != driver.Freed {
		t.Fatal(status)
	}
	if r := g2.renew(); r.Status != driver.Renewed {
		t.Fatalf("%+v", r)
	}
	b.hold("k", driver.Permits, 2, 3).release()
	g2.release()
	// Only the one who was forced out is left: the name is free for a lock.
	b.hold("k", driver.Exclusive)
	if r := g1.renew(); r.Status != driver.Lost {
		t.Fatalf("%+v", r)
	}
	if ok, err := g1.free(); ok || err != nil {
		t.Fatal(ok, err)
	}
}

func TestForceOverProcesses(t *testing.T) {
	t.Parallel()
	c := openStore(t, t.TempDir(), nil)
	ch := start(t, command("holder", c.path, "k", "x"))
	var status int
	var owner string
	var token uint64
	if _, err := fmt.Sscan(ch.say(""), &status, &owner, &token); err != nil {
		t.Fatal(err)
	}
	req := &driver.BreakRequest{Name: driver.Name{Key: "k"}, Reason: "stuck", Force: true}
	raw, err := hex.DecodeString(owner)
	if err != nil {
		t.Fatal(err)
	}
	copy(req.Owner[:], raw) // by owner
	if got, err := c.Break(t.Context(), req); err != nil || got != driver.Freed {
		t.Fatal(got, err)
	}
	g := c.hold("k", driver.Exclusive)
	if g.token <= token {
		t.Fatalf("token %d after %d", g.token, token)
	}
	if answer := ch.say("renew"); !strings.HasPrefix(answer, fmt.Sprintf("%d stuck", driver.Lost)) {
		t.Fatal(answer)
	}
	if answer := ch.say("release"); answer != "false <nil>" {
		t.Fatal(answer)
	}
	c.mustBeHeld("k", driver.Exclusive)
}

func TestRelabel(t *testing.T) {
	t.Parallel()
	c := openStore(t, t.TempDir(), nil)
	for _, mode := range []driver.Mode{driver.Exclusive, driver.Shared} {
		g := c.hold("k", mode)
		heir := "heir \"of\" it\n" + strings.Repeat("ä", 300)
		if r := c.Renew(t.Context(), []driver.RenewRequest{{Ref: g.ref, Label: heir}})[0]; r.Status != driver.Renewed || r.Err != nil {
			t.Fatalf("%+v", r)
		}
		r, err := c.Inspect(t.Context(), g.ref.Name)
		if err != nil || !strings.HasPrefix(heir, r.Holders[0].Label) || len(r.Holders[0].Label) < 256 {
			t.Fatalf("%+v %v", r, err)
		}
		g.release()
	}
}

// A breaker who was stopped half-way stops no other for good.
func TestBreakWhileAnotherIsStopped(t *testing.T) {
	t.Parallel()
	c := openStore(t, t.TempDir(), nil)
	g := c.hold("k", driver.Exclusive)
	unlock := lockByteOf(t, c.path+"/k.lock", breakByte)
	req := &driver.BreakRequest{Name: g.ref.Name, Token: g.token, Reason: "stuck"}
	try := func(ctx context.Context) (kind driver.Kind, err error) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, err = c.Break(ctx, req)
		}()
		select {
		case <-done:
			return c.Classify(err), err
		case <-time.After(testPatience):
			t.Fatal("the break does not end")
			return 0, nil
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	if kind, err := try(ctx); kind != driver.Canceled || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(kind, err)
	}
	if kind, err := try(t.Context()); kind != driver.Unavailable || !strings.Contains(err.Error(), c.path+"/k.lock") {
		t.Fatal(kind, err)
	}
	unlock()
	if status, err := c.Break(t.Context(), req); err != nil || status != driver.Marked {
		t.Fatal(status, err)
	}
}

// Nor does one who was stopped while he wrote the floor.
func TestSweepWhileAnotherIsStopped(t *testing.T) {
	t.Parallel()
	c := openStore(t, t.TempDir(), nil)
	c.hold("k", driver.Exclusive).release()
	until(t, "the first sweep", func() bool { return !c.sweepDue() })
	lockByteOf(t, c.path+"/"+floorName, floorByte)
	done := make(chan int, 1)
	go func() { done <- c.sweep(t.Context(), 0) }()
	select {
	case n := <-done:
		if n != 0 {
			t.Fatalf("swept %d", n)
		}
	case <-time.After(testPatience):
		t.Fatal("the sweep does not end")
	}
	c.hold("k", driver.Exclusive)
}

// lockByteOf locks a byte of a file as another process would.
func lockByteOf(t *testing.T, path string, b int64) (unlock func()) {
	t.Helper()
	fd, err := syscall.Open(path, syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeFD(fd) })
	if ok, err := tryLock(fd, writeLock, b, 1); !ok || err != nil {
		t.Fatal(ok, err)
	}
	return func() { free(fd, b, 1) }
}
