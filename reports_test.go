package holdfast_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// Scenarios that users of lock software reported, tried on this package; the
// numbers are those of docs/scenarios.md.

// B001: acquires that are cancelled at any moment, and leases that are released
// at once, leave no renewal behind, and no goroutine.
func TestCancelledAcquiresLeaveNoRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		s := newSpy(t, server)
		s.remote = true
		s.onAcquire = func(context.Context, []*driver.AcquireRequest) error {
			time.Sleep(time.Duration(rand.N(4)) * time.Millisecond)
			return nil
		}
		c := s.client(t)
		for i := range 2000 {
			ctx, cancel := context.WithCancel(t.Context())
			out := later(ctx, c, "x"+strconv.Itoa(i%3), &holdfast.AcquireOptions{TTL: time.Second})
			time.Sleep(time.Duration(rand.N(4)) * time.Millisecond) // often in the moment of the answer
			cancel()
			if got := <-out; got.err == nil {
				give(t, got.lease)
			}
		}
		time.Sleep(10 * time.Second)
		before := s.renews.Load()
		time.Sleep(time.Minute)
		if n := s.renews.Load() - before; n != 0 {
			t.Errorf("%d renewals of nobody's lease", n)
		}
		free(t, server)
	})
}

// B002: a store that stands still for a while, and then does what it was asked
// long ago, holds nothing for those who have given that up.
func TestStoreThatStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		s := newPlain(t, server)
		var still atomic.Bool
		wake := make(chan struct{})
		stall := func(ctx context.Context, late func()) error {
			if !still.Load() {
				return nil
			}
			go func() {
				<-wake
				late()
			}()
			<-ctx.Done()
			return torn()
		}
		s.onAcquire = func(ctx context.Context, req *driver.AcquireRequest) (driver.AcquireResult, error) {
			kept := *req
			if err := stall(ctx, func() { _, _ = s.inner.Acquire(t.Context(), &kept) }); err != nil {
				return driver.AcquireResult{}, err
			}
			return s.inner.Acquire(ctx, req)
		}
		s.onRelease = func(ctx context.Context, req *driver.ReleaseRequest) (bool, error) {
			kept := *req
			if err := stall(ctx, func() { _, _ = s.inner.Release(t.Context(), &kept) }); err != nil {
				return false, err
			}
			return s.inner.Release(ctx, req)
		}
		c := open(t, s, &holdfast.Options{RequestTimeout: 500 * time.Millisecond})
		ctx, cancel := context.WithCancel(t.Context())
		var worker sync.WaitGroup
		worker.Go(func() {
			for ctx.Err() == nil {
				if l, err := c.Acquire(ctx, "x", &holdfast.AcquireOptions{TTL: time.Hour}); err == nil {
					time.Sleep(10 * time.Millisecond)
					_ = l.Release(ctx)
				}
			}
		})
		time.Sleep(time.Second)
		still.Store(true)
		time.Sleep(5 * time.Second)
		still.Store(false)
		close(wake)
		synctest.Wait()
		cancel()
		worker.Wait()
		time.Sleep(6 * time.Second)
		give(t, take(t, newSpy(t, server).client(t), "x", &holdfast.AcquireOptions{Tries: 1}))
		free(t, server)
	})
}

// B039: a client that has used tens of thousands of names remembers few of them,
// and the lease that it had before is as good as ever.
func TestUsedNamesAreForgotten(t *testing.T) {
	server := memlock.NewServer()
	c := open(t, newSpy(t, server), nil)
	long := take(t, c, "long", nil)
	lap := func(first, n int) uint64 {
		for i := range n {
			give(t, take(t, c, "orders/"+strconv.Itoa(first+i), nil))
		}
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	warm := lap(0, 5_000)
	// 100 bytes for each name would be 2 MB.
	if now := lap(5_000, 20_000); now > warm+1<<20 {
		t.Errorf("%d bytes after 5,000 names, %d after 25,000", warm, now)
	}
	_, err := open(t, newSpy(t, server), nil).TryAcquire(t.Context(), "long", nil)
	want(t, err, holdfast.ErrHeld)
	give(t, long)
	runtime.KeepAlive(server)
}

// B048: a wait that runs out in the very moment in which the name is freed wins
// it or leaves it alone, on every kind of store.
func TestWaitEndsAsTheNameIsFreed(t *testing.T) {
	kinds := map[string]func(*testing.T, *memlock.Server) driver.Store{
		"queue":  func(t *testing.T, server *memlock.Server) driver.Store { t.Helper(); return newSpy(t, server) },
		"beats":  func(t *testing.T, server *memlock.Server) driver.Store { t.Helper(); return newQueueing(t, server) },
		"parked": func(t *testing.T, server *memlock.Server) driver.Store { t.Helper(); return newParking(t, server) },
		"polled": func(t *testing.T, server *memlock.Server) driver.Store { t.Helper(); return newPlain(t, server) },
	}
	for kind, store := range kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := memlock.NewServer()
				b, c := open(t, store(t, server), nil), newSpy(t, server).client(t)
				for range 500 {
					held := take(t, c, "x", nil)
					out := later(t.Context(), b, "x", &holdfast.AcquireOptions{Wait: 50 * time.Millisecond})
					time.Sleep(time.Duration(48+rand.N(5)) * time.Millisecond) // often in the very moment
					give(t, held)
					if got := <-out; got.err == nil {
						give(t, got.lease)
					} else {
						want(t, got.err, holdfast.ErrTimeout)
					}
					time.Sleep(500 * time.Millisecond)
					l, err := c.TryAcquire(t.Context(), "x", nil)
					if err != nil {
						t.Fatalf("a wait that ran out holds the name: %v", err)
					}
					give(t, l)
				}
			})
		})
	}
}

// B053: permits do not get lost one by one while answers do.
func TestPermitsOutlastLostAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		s := newPlain(t, server)
		var healed atomic.Bool
		lost := func() bool { return !healed.Load() && rand.N(3) == 0 }
		s.onAcquire = func(ctx context.Context, req *driver.AcquireRequest) (driver.AcquireResult, error) {
			res, err := s.inner.Acquire(ctx, req)
			if lost() {
				return driver.AcquireResult{}, torn()
			}
			return res, err
		}
		s.onRelease = func(ctx context.Context, req *driver.ReleaseRequest) (bool, error) {
			if lost() {
				return false, torn() // it did not even arrive
			}
			return s.inner.Release(ctx, req)
		}
		c := open(t, s, nil)
		o := &holdfast.AcquireOptions{Permits: 1, Limit: 3, Wait: 300 * time.Millisecond, TTL: time.Hour}
		end := time.Now().Add(time.Minute)
		var workers sync.WaitGroup
		var got atomic.Int64
		for range 10 {
			workers.Go(func() {
				for time.Now().Before(end) {
					if l, err := c.Acquire(t.Context(), "s", o); err == nil {
						got.Add(1)
						time.Sleep(5 * time.Millisecond)
						_ = l.Release(t.Context())
					}
				}
			})
		}
		workers.Wait()
		healed.Store(true)
		time.Sleep(10 * time.Second)
		other := newSpy(t, server).client(t)
		for range 3 {
			if _, err := other.TryAcquire(t.Context(), "s", o); err != nil {
				t.Errorf("a permit is lost: %v", err)
			}
		}
		if got.Load() < 100 {
			t.Errorf("only %d were granted", got.Load())
		}
	})
}

// B115: a wait lasts as long as it was asked to, however often others are
// quicker meanwhile.
func TestWaitAmongRivals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		ctx, cancel := context.WithCancel(t.Context())
		var rivals sync.WaitGroup
		var turns atomic.Int64
		for range 3 { // in the store's queue, which a store that polls cannot overtake
			c := newSpy(t, server).client(t)
			rivals.Go(func() {
				for ctx.Err() == nil {
					if l, err := c.Acquire(ctx, "x", nil); err == nil {
						turns.Add(1)
						time.Sleep(300 * time.Millisecond)
						_ = l.Release(ctx)
					}
				}
			})
		}
		time.Sleep(time.Second)
		const wait = 8 * time.Second
		start := time.Now()
		_, err := open(t, newPlain(t, server), nil).Acquire(t.Context(), "x", &holdfast.AcquireOptions{Wait: wait})
		want(t, err, holdfast.ErrTimeout, holdfast.ErrHeld)
		if took := time.Since(start); took < wait || took > wait+wait/10 {
			t.Errorf("a wait of %v took %v", wait, took)
		}
		if turns.Load() < 20 {
			t.Errorf("%d turns of the others", turns.Load())
		}
		cancel()
		rivals.Wait()
	})
}

// B117: that messages may have been lost says nothing of a lease, however often.
func TestMissedSignalsLoseNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newQueueing(t, memlock.NewServer())
		c := open(t, s, nil)
		l := take(t, c, "x", &holdfast.AcquireOptions{TTL: 5 * time.Second})
		for range 60 {
			s.missed()
			time.Sleep(time.Second)
			if !l.Valid() {
				t.Fatalf("lost: %v", context.Cause(l.Context()))
			}
		}
		give(t, l)
	})
}

// B121: who comes back under the same name is another owner: he waits for what
// he left behind as anybody else does, and cannot free it.
func TestSameLabelIsAnotherOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		o := &holdfast.Options{Label: "worker-7"}
		o2 := &holdfast.AcquireOptions{TTL: 2 * time.Second, NoRenew: true} // as of one that was killed
		first := take(t, open(t, newSpy(t, server), o), "x", o2)
		again := open(t, newSpy(t, server), o)
		_, err := again.TryAcquire(t.Context(), "x", nil)
		want(t, err, holdfast.ErrHeld)
		l := take(t, again, "x", nil)
		if first.Valid() || l.Owner() == first.Owner() || l.Token() <= first.Token() {
			t.Errorf("%s %d after %s %d", l.Owner(), l.Token(), first.Owner(), first.Token())
		}
		want(t, first.Release(t.Context()), holdfast.ErrLost)
		if err := l.Check(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// B157: a reader who reads again inside does not wait for the writer who waits
// for him.
func TestReaderInsideBesideAWaitingWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		c := newSpy(t, server).client(t)
		o := &holdfast.AcquireOptions{Mode: holdfast.Shared, Reentrant: true}
		outer := take(t, c, "x", o)
		writer := later(t.Context(), newSpy(t, server).client(t), "x", nil)
		time.Sleep(time.Second)
		start := time.Now()
		inner, err := c.Acquire(outer.Context(), "x", o)
		if err != nil || time.Since(start) != 0 {
			t.Fatalf("after %v: %v", time.Since(start), err)
		}
		give(t, outer)
		time.Sleep(time.Minute)
		select {
		case got := <-writer:
			t.Fatalf("a writer beside the inner reader: %v", got.err)
		default:
		}
		give(t, inner)
		got := <-writer
		if got.err != nil || errors.Is(context.Cause(got.lease.Context()), holdfast.ErrLost) {
			t.Fatal(got.err)
		}
		give(t, got.lease)
	})
}
