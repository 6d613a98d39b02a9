package holdfast_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// Thousands of waits that become long at once are told how many are ahead, each the
// right number, also when some have left meanwhile.
func TestManyLongWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const waiters = 20_000
		tale := &story{}
		server := memlock.NewServer()
		c := open(t, newSpy(t, server), &holdfast.Options{Observe: tale.observe})
		held := take(t, newSpy(t, server).client(t), "x", nil)
		ctx, cancel := context.WithCancel(t.Context())
		impatient, leave := context.WithCancel(ctx)
		for i := range waiters {
			later([]context.Context{ctx, impatient}[i%2], c, "x", nil)
		}
		time.Sleep(5 * time.Second)
		for range waiters {
			later(ctx, c, "x", nil)
		}
		time.Sleep(6 * time.Second)
		leave()
		time.Sleep(10 * time.Second)
		var ahead []int
		for _, e := range tale.of(0) {
			if e.Kind == holdfast.EventLongWait {
				ahead = append(ahead, e.Ahead)
			}
		}
		if len(ahead) != 2*waiters {
			t.Fatalf("%d long waits", len(ahead))
		}
		for round, first := range []int{0, waiters / 2} { // half of the first have left
			told := ahead[round*waiters:][:waiters]
			slices.Sort(told)
			for i, n := range told {
				if n != first+i {
					t.Fatalf("round %d: %d are told to be ahead, want %d", round, n, first+i)
				}
			}
		}
		cancel()
		synctest.Wait()
		give(t, held)
	})
}

// A wait of a day is told as long once; the outages of a store that comes and goes
// are told when the first begins, and then only those that last.
func TestWaitOfADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tale := &story{}
		server := memlock.NewServer()
		s := newPlain(t, server)
		began := time.Now()
		s.onAcquire = func(ctx context.Context, req *driver.AcquireRequest) (driver.AcquireResult, error) {
			if time.Since(began)%time.Minute > 55*time.Second {
				return driver.AcquireResult{}, down()
			}
			return s.inner.Acquire(ctx, req)
		}
		held := take(t, newSpy(t, server).client(t), "x", nil)
		c := open(t, s, &holdfast.Options{Observe: tale.observe})
		got := later(t.Context(), c, "x", nil)
		time.Sleep(24 * time.Hour)
		tale.check(t, 0, "long_wait store_down")
		give(t, held)
		give(t, (<-got).lease)
	})
}
