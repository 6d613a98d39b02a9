package holdfast_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memlock"
)

// acquireAll starts n goroutines that acquire, hold and release once each, in
// the order of their numbers, and sends every lease when it is got.
func acquireAll(t *testing.T, c *holdfast.Client, n int, hold time.Duration) <-chan *holdfast.Lease {
	t.Helper()
	got := make(chan *holdfast.Lease, n)
	for range n {
		go func() {
			l, err := c.Acquire(t.Context(), "x", nil)
			if err != nil {
				t.Error(err)
				return
			}
			got <- l
			time.Sleep(hold)
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait() // in line before the next comes
	}
	return got
}

// A turn hands the hold on without a store command, with growing tokens of one
// store token, to those who waited when the grant came.
func TestTurnCostsNoStoreCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		s := newSpy(t, server)
		c := s.client(t)
		other := newSpy(t, server).client(t)
		first, err := other.Acquire(t.Context(), "x", nil)
		if err != nil {
			t.Fatal(err)
		}
		got := acquireAll(t, c, 100, 10*time.Microsecond)
		before := s.acquires.Load() + s.releases.Load()
		if err := first.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		var last uint64
		for range 100 {
			l := <-got
			if l.Token() <= last || last != 0 && l.Token()>>8 != last>>8 {
				t.Fatalf("token %d after %d: must grow within one store token", l.Token(), last)
			}
			last = l.Token()
		}
		if asked := s.acquires.Load() + s.releases.Load() - before; asked != 1 {
			t.Errorf("100 hand-overs cost %d store commands, want the one release at the end", asked)
		}
	})
}

// Another process gets the name after at most one turn, however many goroutines
// of this one want it.
func TestTurnIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		c := newSpy(t, server).client(t)
		other := newSpy(t, server).client(t)
		held := make(chan *holdfast.Lease, 1)
		var turns atomic.Int64
		for range 300 {
			go func() {
				for range 20 {
					l, err := c.Acquire(t.Context(), "x", nil)
					if err != nil {
						return // the test is over
					}
					turns.Add(1)
					time.Sleep(time.Microsecond)
					_ = l.Release(t.Context())
				}
			}()
		}
		go func() {
			time.Sleep(10 * time.Microsecond)
			before := turns.Load()
			l, err := other.Acquire(t.Context(), "x", nil)
			if err != nil {
				t.Error(err)
				return
			}
			if n := turns.Load() - before; n > 2*256 {
				t.Errorf("%d turns before another process got one", n)
			}
			held <- l
		}()
		l := <-held
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
	})
}

// After 10 ms the turn is over, and the goroutines that wait have a place in
// the store's queue.
func TestTurnEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		c := newSpy(t, server).client(t)
		other := newSpy(t, server).client(t)
		got := acquireAll(t, c, 3, time.Minute)
		<-got
		time.Sleep(20 * time.Millisecond)
		r, err := other.Inspect(t.Context(), "x")
		if err != nil || len(r.Waiters) != 1 {
			t.Fatalf("%d waiters in the store (%v), want the one of the whole process", len(r.Waiters), err)
		}
		time.Sleep(5 * time.Minute)
	})
}

// Readers that wait together come in together, under one hold: those who were
// there at the place's latest heartbeat. (One who came after the grant may have
// seen a larger token.)
func TestReadersShareAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		s := newSpy(t, server)
		c := s.client(t)
		w, err := newSpy(t, server).client(t).Acquire(t.Context(), "x", nil)
		if err != nil {
			t.Fatal(err)
		}
		leases := make(chan *holdfast.Lease, 10)
		for range 10 {
			go func() {
				l, err := c.RWMutex("x").RLock(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				leases <- l
			}()
		}
		time.Sleep(2 * time.Second)
		if err := w.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		var inside []*holdfast.Lease
		for range 10 {
			inside = append(inside, <-leases)
		}
		r, err := c.Inspect(t.Context(), "x")
		if err != nil || len(r.Holders) != 1 {
			t.Errorf("%d holds in the store (%v), want 1", len(r.Holders), err)
		}
		for _, l := range inside {
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}
