package holdfast_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// Requests that share a timeout still have nearly all of their time, and one of
// any other length has its own.
func TestSharedTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(t, memlock.NewServer())
		s.remote = true
		var left time.Duration
		s.onAcquire = func(ctx context.Context, _ []*driver.AcquireRequest) error {
			end, ok := ctx.Deadline()
			if !ok || !driver.DeadlineOnly(ctx) {
				t.Error("a request without a bound of its own")
			}
			left = time.Until(end)
			return nil
		}
		c := s.client(t)
		for i := range 200 {
			ttl := time.Duration(300+i%12*300) * time.Millisecond
			l, err := c.TryAcquire(context.WithoutCancel(t.Context()), "x", &holdfast.AcquireOptions{TTL: ttl})
			if err != nil {
				t.Fatal(err)
			}
			if left > ttl/3 || left < ttl/3*7/8 {
				t.Errorf("%v to answer in, with a TTL of %v", left, ttl)
			}
			give(t, l)
			time.Sleep(7 * time.Millisecond)
		}
	})
}
