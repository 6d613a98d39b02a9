package holdfast_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memlock"
)

// The shortest wait gets a free name, and is told of a held one what a longer
// wait is.
func TestWaitOfANanosecond(t *testing.T) {
	for _, remote := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			server := memlock.NewServer()
			s := newSpy(t, server)
			s.remote = remote
			c := s.client(t)
			o := &holdfast.AcquireOptions{Wait: time.Nanosecond}
			give(t, take(t, c, "x", o))
			held := take(t, newSpy(t, server).client(t), "x", nil)
			start := time.Now()
			_, err := c.Acquire(t.Context(), "x", o)
			want(t, err, holdfast.ErrTimeout, holdfast.ErrHeld)
			if took := time.Since(start); took > 50*time.Millisecond {
				t.Errorf("took %v", took)
			}
			if e, ok := errors.AsType[*holdfast.Error](err); !ok || e.Holder == nil || !e.Timeout() {
				t.Errorf("%#v", err)
			}
			give(t, held)
			time.Sleep(time.Second)
			free(t, server)
		})
	}
}

// With a ctx that has ended the store is not asked, though the name be free.
func TestContextAlreadyEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(t, memlock.NewServer())
		c := s.client(t)
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		expired, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		defer cancel()
		for _, o := range []*holdfast.AcquireOptions{nil, {Tries: 2}, {Wait: time.Second}, {Unfair: true}} {
			_, err := c.Acquire(canceled, "x", o)
			want(t, err, context.Canceled)
			if errors.Is(err, holdfast.ErrTimeout) {
				t.Errorf("%v: called off, not run out", err)
			}
			_, err = c.Acquire(expired, "x", o)
			want(t, err, context.DeadlineExceeded, holdfast.ErrTimeout)
		}
		_, err := c.TryAcquire(canceled, "x", nil)
		want(t, err, context.Canceled)
		if n := s.acquires.Load(); n != 0 {
			t.Errorf("%d store commands", n)
		}
	})
}

// Tries alone end with ErrHeld; with Wait or ctx before them, with ErrTimeout
// too.
func TestTriesWithWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		held := take(t, open(t, newSpy(t, server), &holdfast.Options{Label: "holder"}), "x", nil)
		s := newSpy(t, server)
		c := s.client(t)
		_, err := c.Acquire(t.Context(), "x", &holdfast.AcquireOptions{Tries: 3})
		want(t, err, holdfast.ErrHeld)
		if n := s.acquires.Load(); n != 3 || errors.Is(err, holdfast.ErrTimeout) {
			t.Errorf("%d attempts: %v", n, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start := time.Now()
		for i, acquire := range []func() (*holdfast.Lease, error){
			func() (*holdfast.Lease, error) {
				return c.Acquire(t.Context(), "x", &holdfast.AcquireOptions{Tries: 1000, Wait: 3 * time.Second})
			},
			func() (*holdfast.Lease, error) { return c.Acquire(ctx, "x", &holdfast.AcquireOptions{Tries: 1000}) },
		} {
			_, err := acquire()
			want(t, err, holdfast.ErrTimeout, holdfast.ErrHeld)
			if e, ok := errors.AsType[*holdfast.Error](err); !ok || e.Holder == nil || e.Holder.Label != "holder" {
				t.Errorf("holder missing: %v", err)
			}
			if took := time.Since(start); took != time.Duration(3+2*i)*time.Second {
				t.Errorf("took %v", took)
			}
		}
		if r, err := c.Inspect(t.Context(), "x"); err != nil || len(r.Waiters) != 0 {
			t.Errorf("%d places taken (%v)", len(r.Waiters), err)
		}
		give(t, held)
	})
}

// Of 10,000 waiters 9,000 leave at random while the name goes from hand to
// hand; the others all get it, and nothing is left.
func TestManyWaitersLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const all, leave = 10_000, 9_000
		server := memlock.NewServer()
		c := newSpy(t, server).client(t)
		held := take(t, newSpy(t, server).client(t), "x", nil)
		var done sync.WaitGroup
		cancels := make([]context.CancelFunc, all)
		granted, gone := 0, 0
		var mu sync.Mutex
		for i := range all {
			ctx, cancel := context.WithCancel(t.Context())
			cancels[i] = cancel
			done.Go(func() {
				l, err := c.Acquire(ctx, "x", nil)
				if err == nil {
					_ = l.Release(ctx)
				}
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					granted++
				} else if want(t, err, context.Canceled); true {
					gone++
				}
			})
		}
		synctest.Wait()
		order := rand.Perm(all)
		for i, n := range order[:leave] {
			cancels[n]()
			if i == leave/2 {
				synctest.Wait() // half of them are surely gone before the first grant
				give(t, held)
			}
		}
		done.Wait()
		for _, cancel := range cancels {
			cancel()
		}
		if granted < all-leave || granted+gone != all || gone < leave/2 {
			t.Errorf("%d granted, %d gone", granted, gone)
		}
		time.Sleep(time.Second)
		free(t, server)
		give(t, take(t, c, "x", nil))
	})
}

// One who barges, and takes no place, does not keep the fair ones of his
// process from theirs.
func TestUnfairWaiterBesideFairOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		other := newSpy(t, server).client(t)
		held := take(t, other, "x", nil)
		c := newSpy(t, server).client(t)
		unfair := later(t.Context(), c, "x", &holdfast.AcquireOptions{Unfair: true})
		time.Sleep(time.Second)
		fair := later(t.Context(), c, "x", nil)
		time.Sleep(time.Second)
		r, err := other.Inspect(t.Context(), "x")
		if err != nil || len(r.Waiters) != 1 {
			t.Errorf("%d places (%v), want that of the fair one", len(r.Waiters), err)
		}
		give(t, held)
		got := <-fair
		give(t, got.lease)
		give(t, (<-unfair).lease)
		free(t, server)
	})
}

// The grant of another's release lives for a claim window only. A handle made
// from it at once lives its TTL all the same.
func TestHandleRightAfterAHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		other := newSpy(t, server).client(t)
		held := take(t, other, "x", nil)
		out := later(t.Context(), newSpy(t, server).client(t), "x", &holdfast.AcquireOptions{TTL: 20 * time.Second})
		time.Sleep(time.Second)
		give(t, held)
		text, err := (<-out).lease.Handle()
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(19 * time.Second)
		l, err := other.Adopt(t.Context(), text)
		if err != nil {
			t.Fatal(err)
		}
		give(t, l)
	})
}

// Valid is called before each side effect: it leaves nothing to collect.
func TestValidAllocatesNothing(t *testing.T) {
	l := take(t, open(t, grants{}, nil), "x", nil)
	if n := testing.AllocsPerRun(100, func() { l.Valid() }); n != 0 || !l.Valid() {
		t.Errorf("%v allocations", n)
	}
	give(t, l)
}
