//go:build linux

package filelock

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
)

// TestMain runs one of the children's roles instead of the tests, if told so.
func TestMain(m *testing.M) {
	drivertest.Main(openForSuite)
	if role := os.Getenv("FILELOCK_TEST_ROLE"); role != "" {
		os.Exit(runRole(role, os.Args[1:]))
	}
	os.Exit(m.Run())
}

// patience bounds what a test waits for; a busy machine may need much.
const testPatience = 60 * time.Second

// client is a store with the calls as tests want them.
type client struct {
	*store
	tb testing.TB
}

func openStore(tb testing.TB, dir string, opts *Options) *client {
	tb.Helper()
	s, err := New(dir, opts)
	if err != nil {
		tb.Fatal(err)
	}
	c := &client{store: s.(*store), tb: tb} //nolint:errcheck // New makes no other
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// locksOf makes the user's side of a store.
func locksOf(tb testing.TB, c *client) *holdfast.Client {
	tb.Helper()
	locks, err := holdfast.New(c.store, &holdfast.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = locks.Close() })
	return locks
}

var owners atomic.Uint64

func newOwner() driver.Owner {
	var o driver.Owner
	copy(o[:], fmt.Appendf(nil, "%08x%08d", os.Getpid(), owners.Add(1)))
	return o
}

func request(key string, mode driver.Mode, permits ...int) *driver.AcquireRequest {
	req := &driver.AcquireRequest{
		Name: driver.Name{Key: key, Full: "Name of " + key, Prefix: "app"}, Owner: newOwner(),
		Label: fmt.Sprintf("host/%d/test", os.Getpid()), Mode: mode, TTL: time.Minute,
	}
	if mode == driver.Permits {
		req.N, req.Limit = permits[0], permits[1]
	}
	return req
}

// grip is a hold in a test.
type grip struct {
	c     *client
	ref   driver.Ref
	token uint64
}

func gripOf(c *client, req *driver.AcquireRequest, g driver.Grant) *grip {
	return &grip{c, driver.Ref{Name: req.Name, Owner: req.Owner, Mode: req.Mode, Token: g.Token}, g.Token}
}

// try makes an attempt; nil if the name is held.
func (c *client) tryHold(key string, mode driver.Mode, permits ...int) *grip {
	c.tb.Helper()
	req := request(key, mode, permits...)
	res, err := c.Acquire(context.Background(), req)
	if err != nil {
		c.tb.Fatalf("acquire: %v", err)
	}
	switch res.Status {
	case driver.Granted:
		return gripOf(c, req, res.Grant)
	case driver.Held:
		return nil
	default:
		c.tb.Fatalf("acquire: status %d", res.Status)
		return nil
	}
}

func (c *client) hold(key string, mode driver.Mode, permits ...int) *grip {
	c.tb.Helper()
	g := c.tryHold(key, mode, permits...)
	if g == nil {
		c.tb.Fatalf("%s is held", key)
	}
	return g
}

func (c *client) mustBeHeld(key string, mode driver.Mode, permits ...int) {
	c.tb.Helper()
	if g := c.tryHold(key, mode, permits...); g != nil {
		c.tb.Fatalf("%s was granted twice", key)
	}
}

// kindOf makes an attempt that must fail.
func (c *client) kindOf(req *driver.AcquireRequest) (driver.Kind, error) {
	c.tb.Helper()
	res, err := c.Acquire(context.Background(), req)
	if err == nil {
		c.tb.Fatalf("no error, but status %d", res.Status)
	}
	return c.Classify(err), err
}

func (g *grip) release() {
	g.c.tb.Helper()
	if ok, err := g.free(); !ok || err != nil {
		g.c.tb.Fatalf("release: %v, %v", ok, err)
	}
}

func (g *grip) free() (bool, error) {
	return g.c.Release(context.Background(), &driver.ReleaseRequest{Ref: g.ref})
}

func (g *grip) renew() driver.RenewResult {
	return g.c.Renew(context.Background(), []driver.RenewRequest{{Ref: g.ref}})[0]
}

// waiter is a Block that runs.
type waiter struct {
	req    *driver.AcquireRequest
	cancel context.CancelFunc
	done   chan struct{}
	grip   *grip
	err    error
}

func (c *client) wait(key string, mode driver.Mode, permits ...int) *waiter {
	ctx, cancel := context.WithCancel(context.Background())
	w := &waiter{req: request(key, mode, permits...), cancel: cancel, done: make(chan struct{})}
	c.tb.Cleanup(cancel)
	go func() {
		defer close(w.done)
		g, err := c.Block(ctx, w.req)
		if w.err = err; err == nil {
			w.grip = gripOf(c, w.req, g)
		}
	}()
	return w
}

func (w *waiter) granted(tb testing.TB) *grip {
	tb.Helper()
	select {
	case <-w.done:
	case <-time.After(testPatience):
		tb.Fatal("the wait does not end")
	}
	if w.err != nil {
		tb.Fatalf("block: %v", w.err)
	}
	return w.grip
}

func (w *waiter) ended(tb testing.TB) error {
	tb.Helper()
	select {
	case <-w.done:
		return w.err
	case <-time.After(testPatience):
		tb.Fatal("the wait does not end")
		return nil
	}
}

// until polls for a condition.
func until(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(testPatience); !ok(); <-tick.C {
		if time.Now().After(end) {
			tb.Fatalf("not in time: %s", what)
		}
	}
}

// gateWaited tells whether somebody waits for the lock with the gate in hand.
func gateWaited(dir, key string) bool { return byteLocked(dir, key, markByte) }

// crowded tells whether somebody is parked at the gate.
func crowded(dir, key string) bool { return byteLocked(dir, key, crowdByte) }

func byteLocked(dir, key string, b int64) bool {
	fd, err := syscall.Open(dir+"/"+key+suffix, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer syscall.Close(fd)
	_, busy, err := probe(fd, writeLock, b, 1)
	return busy && err == nil
}
