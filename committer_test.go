package holdfast_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// Calls of the same moment travel together, never two of one name in a batch.
func TestCallsTravelTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(t, memlock.NewServer())
		s.remote = true
		s.onAcquire = func(_ context.Context, reqs []*driver.AcquireRequest) error {
			names := map[string]bool{}
			for _, r := range reqs {
				if names[r.Name.Key] {
					t.Errorf("two requests of %q in one batch", r.Name.Full)
				}
				names[r.Name.Key] = true
			}
			time.Sleep(time.Millisecond) // a round trip
			return nil
		}
		c := s.client(t)
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				l, err := c.Acquire(t.Context(), strconv.Itoa(i), nil)
				if err != nil {
					t.Error(err)
					return
				}
				if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := s.acquires.Load(); n > 20 {
			t.Errorf("100 acquires of one moment made %d exchanges", n)
		}
	})
}

// A batch that is surely refused as a whole comes again in halves: one request
// that the store cannot take does not fail the others.
func TestRefusedBatchComesAgainInHalves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(t, memlock.NewServer())
		s.remote = true
		s.onAcquire = func(_ context.Context, reqs []*driver.AcquireRequest) error {
			time.Sleep(time.Millisecond)
			for _, r := range reqs {
				if r.Name.Full == "poison" {
					return &driver.Failure{Kind: driver.Invalid, Err: errors.New("poison")}
				}
			}
			return nil
		}
		c := s.client(t)
		var all sync.WaitGroup
		for i := range 50 {
			name := strconv.Itoa(i)
			if i == 30 {
				name = "poison"
			}
			all.Go(func() {
				if _, err := c.TryAcquire(t.Context(), name, nil); (err != nil) != (name == "poison") {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		all.Wait()
	})
}
