package holdfast_test

import (
	"context"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// A heartbeat that the store wants sooner than the grid allows does not spin.
func TestRegressionAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		take(t, newSpy(t, server).client(t), "x", nil)
		s := newQueueing(t, server)
		s.onAnswer = func(q *driver.Queue) { q.Again = 30 * time.Millisecond }
		s.onBeat = func(context.Context, []driver.Ref, int) { time.Sleep(time.Millisecond) }
		later(t.Context(), open(t, s, nil), "x", nil)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := len(s.beats.pauses()); n > 400 {
			t.Errorf("%d beats in 10 s", n)
		}
	})
}

// A session whose proof of life is older than TTL/3 does not make renewals spin.
func TestRegressionOldProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memlock.NewServer(), 30*time.Second)
		proof := s.onRenew
		var n atomic.Int64
		s.onRenew = func(ctx context.Context, req driver.RenewRequest) driver.RenewResult {
			n.Add(1)
			time.Sleep(time.Millisecond)
			return proof(ctx, req)
		}
		c := open(t, s, nil)
		s.beats(0)
		l := take(t, c, "x", nil)
		time.Sleep(15 * time.Second)
		if n.Load() > 20 || !l.Valid() {
			t.Errorf("%d renewals in 15 s, valid %v", n.Load(), l.Valid())
		}
	})
}

// A lease whose granted window is shorter than TTL/3 is renewed within it.
func TestRegressionShortWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPlain(t, memlock.NewServer())
		s.onAcquire = func(ctx context.Context, req *driver.AcquireRequest) (driver.AcquireResult, error) {
			res, err := s.inner.Acquire(ctx, req)
			res.Grant.Window = 9 * time.Second
			return res, err
		}
		s.onRenew = func(ctx context.Context, req driver.RenewRequest) driver.RenewResult {
			res := s.renewOne(ctx, req)
			res.Window = 9 * time.Second
			return res
		}
		c := open(t, s, nil)
		start := time.Now()
		l := take(t, c, "x", nil)
		<-time.After(time.Minute)
		if !l.Valid() {
			t.Errorf("lost within %v: %v", time.Since(start), context.Cause(l.Context()))
		}
	})
}

// The TTL of a lease that ends by itself counts from the grant, not from the begin of the wait.
func TestRegressionNoRenewParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		held := take(t, newSpy(t, server).client(t), "x", nil)
		p := newParking(t, server)
		c := open(t, windowless{p}, nil)
		out := later(t.Context(), c, "x", &holdfast.AcquireOptions{NoRenew: true, TTL: 5 * time.Second})
		time.Sleep(4 * time.Second)
		give(t, held)
		got := <-out
		if trusted(got.lease) < 4*time.Second {
			t.Errorf("trusted %v of 5 s", trusted(got.lease))
		}
		held = take(t, newSpy(t, server).client(t), "y", nil)
		out = later(t.Context(), c, "y", &holdfast.AcquireOptions{NoRenew: true, TTL: 5 * time.Second})
		time.Sleep(10 * time.Second)
		give(t, held)
		<-out
		if len(p.blocks) != 2 {
			t.Errorf("parked %d calls: the grant was given back", len(p.blocks))
		}
	})
}

type windowless struct{ *parking }

func (w windowless) Properties() driver.Properties {
	p := w.parking.Properties()
	p.Local = true
	return p
}

func (w windowless) Block(ctx context.Context, req *driver.AcquireRequest) (driver.Grant, error) {
	g, err := w.parking.Block(ctx, req)
	g.Window, g.Sent = 0, 0
	return g, err
}

// A release on a store without batches is bounded by RequestTimeout too.
func TestRegressionReleaseTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPlain(t, memlock.NewServer())
		s.onRelease = func(ctx context.Context, req *driver.ReleaseRequest) (bool, error) {
			<-ctx.Done()
			return false, torn()
		}
		c := open(t, s, &holdfast.Options{RequestTimeout: 700 * time.Millisecond})
		l := take(t, c, "x", nil)
		start := time.Now()
		err := l.Release(t.Context())
		if took := time.Since(start); took > time.Second {
			t.Errorf("release took %v: %v", took, err)
		}
	})
}

// A wait that ran out tells what its last attempt was answered.
func TestRegressionLastAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		take(t, newSpy(t, server).client(t), "x", nil)
		s := newPlain(t, server)
		var n atomic.Int64
		s.onAcquire = func(ctx context.Context, req *driver.AcquireRequest) (driver.AcquireResult, error) {
			if n.Add(1) == 1 {
				<-ctx.Done()
				return driver.AcquireResult{}, torn()
			}
			return s.inner.Acquire(ctx, req)
		}
		_, err := open(t, s, nil).Acquire(t.Context(), "x", &holdfast.AcquireOptions{Wait: 10 * time.Millisecond})
		want(t, err, holdfast.ErrTimeout, holdfast.ErrHeld)
	})
}

// Signals missed during a heartbeat that fails are asked about at once.
func TestRegressionMissedFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		take(t, newSpy(t, server).client(t), "x", nil)
		s := newQueueing(t, server)
		c := open(t, failing{s}, nil)
		later(t.Context(), c, "x", nil)
		time.Sleep(25 * time.Second)
		synctest.Wait()
		if p := s.beats.pauses(); p[4] != 0 {
			t.Errorf("beats after %v", p)
		}
	})
}

type failing struct{ *queueing }

func (f failing) Beat(ctx context.Context, places []driver.Ref) []driver.BeatResult {
	res := f.queueing.Beat(ctx, places)
	if f.sent.Add(1) == 5 {
		f.missed()
		for i := range res {
			res[i] = driver.BeatResult{Err: down()}
		}
	}
	return res
}

// A held lease costs less than 1 KiB beyond its name.
func TestRegressionMemory(t *testing.T) {
	const n = 10_000
	c := open(t, grants{}, nil)
	names := make([]string, n)
	for i := range names {
		names[i] = "orders/" + strconv.Itoa(i)
	}
	used := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	leases := make([]*holdfast.Lease, n)
	before := used()
	for i, name := range names {
		leases[i] = take(t, c, name, nil)
	}
	if each := (used() - before) / n; each >= 1024 {
		t.Errorf("%d bytes for each lease", each)
	}
	for _, l := range leases {
		give(t, l)
	}
}
